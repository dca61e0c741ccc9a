#include "asap/serve/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "asap/serve/http_error.h"

namespace asap {
namespace {

constexpr std::string_view kScheme = "bearer ";

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

// Digests are of one length, and what a comparison of them would leak says nothing of the keys.
Digest digest(std::string_view key) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data());
  return out;
}

std::string_view bearer(const HttpRequest& head) {
  const std::string_view value = head.header("authorization");
  if (value.size() < kScheme.size()) return {};
  const bool matches =
      std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                 [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  return matches ? value.substr(kScheme.size()) : std::string_view{};
}

HttpReply refusal(int status, std::string message) {
  HttpReply reply = error_reply({status, std::move(message), ""});
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  struct stat status {};
  std::ifstream file(path);
  if (!file || stat(path.c_str(), &status) != 0) {
    return fail(Code::not_found,
                "--api-key-file {}: {}; name a file that holds one key a line, mode 0600", path,
                std::strerror(errno));
  }
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return fail(Code::invalid, "--api-key-file {}: everybody may open it (mode {:o}); chmod 600 it",
                path, status.st_mode & 0777);
  }
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') continue;
    keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1));
  }
  if (keys.empty()) return fail(Code::invalid, "--api-key-file {} holds no key", path);
  return keys;
}

bool equal_keys(std::string_view given, std::string_view expected) {
  const Digest a = digest(given), b = digest(expected);
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool is_admin_path(std::string_view path) {
  return path.starts_with("/admin/") || path == "/start_profile" || path == "/stop_profile";
}

std::optional<HttpReply> check_auth(const AuthKeys& keys, const HttpRequest& head) {
  if (!keys.any()) return std::nullopt;
  const std::string_view path = head.path;
  if (std::find(std::begin(kOpenPaths), std::end(kOpenPaths), path) != std::end(kOpenPaths)) {
    return std::nullopt;
  }
  const std::string_view given = bearer(head);
  bool client = false;
  for (const std::string& key : keys.client) client = equal_keys(given, key) || client;
  const bool admin = !keys.admin.empty() && equal_keys(given, keys.admin);
  if (admin) return std::nullopt;
  if (is_admin_path(path) && !keys.admin.empty()) {
    return client ? refusal(403, "this path needs the administrator's key (--admin-api-key)")
                  : refusal(401, "this path needs the header Authorization: Bearer ADMIN-KEY");
  }
  if (client || keys.client.empty()) return std::nullopt;
  return refusal(401, given.empty() ? "this server needs the header Authorization: Bearer KEY"
                                    : "the API key is not one of this server's");
}

}  // namespace asap
