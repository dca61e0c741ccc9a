#include "asap/model/tiktoken.h"

#include <array>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "asap/model/bpe.h"

namespace asap {

namespace {

constexpr char kFile[] = "tiktoken.model";
constexpr size_t kMaxTiktokenBytes = 4096;

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

// Strict: padded, and without bits that are left over.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return {};
  size_t padding = 0;
  for (; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
    bits &= (1u << count) - 1;
  }
  if (bits != 0 || static_cast<size_t>(count) != 2 * padding) return {};
  return out;
}

struct Line {
  std::string bytes;
  int32_t id;
};

std::optional<Line> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos || space > 2 * kMaxTiktokenBytes) return {};
  std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  int32_t id = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!bytes || bytes->size() > kMaxTiktokenBytes || !whole || id < 0 || id >= kMaxTokenId)
    return {};
  return Line{std::move(*bytes), id};
}

// Ids 0, 1, 2, ...: specials follow after the last one.
Status check(const std::vector<std::string>& tokens) {
  std::unordered_set<std::string_view> seen;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) {
      return fail(Code::invalid, "{}: no token has id {}, but there are {} tokens", kFile, id,
                  tokens.size());
    }
    if (!seen.insert(tokens[id]).second) {
      return fail(Code::invalid, "{}: the token of id {} has another id, too", kFile, id);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (seen.contains(std::string(1, static_cast<char>(byte)))) continue;
    return fail(Code::invalid, "{}: no token stands for byte {:#04x}", kFile, byte);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> parse_tiktoken(std::string_view text) {
  std::vector<Line> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::optional<Line> parsed = parse_line(line);
    if (!parsed) {
      return fail(Code::invalid,
                  "{}: line {} is not a token of at most {} bytes in base64 and its "
                  "id",
                  kFile, number, kMaxTiktokenBytes);
    }
    lines.push_back(std::move(*parsed));
  }
  std::vector<std::string> tokens(lines.size());
  for (Line& line : lines) {
    const auto id = static_cast<size_t>(line.id);
    if (id >= tokens.size()) {
      return fail(Code::invalid, "{}: id {} leaves a gap: there are {} tokens", kFile, id,
                  tokens.size());
    }
    if (!tokens[id].empty()) {
      return fail(Code::invalid, "{}: id {} is given to two tokens", kFile, id);
    }
    tokens[id] = std::move(line.bytes);
  }
  ASAP_TRY(check(tokens));
  return tokens;
}

}  // namespace asap
