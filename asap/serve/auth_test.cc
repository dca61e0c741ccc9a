// Keys: who may ask for what, over a real server; and the file they come from.
#include "asap/serve/auth.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "asap/serve/front.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

using test::fetch;
using test::get;
using test::post;

class AuthTest : public ::testing::Test {
 protected:
  void start(std::vector<std::string> client, std::string admin) {
    ServeOptions options;
    options.port = 0;
    options.served_model_name = "m";
    options.auth = {std::move(client), std::move(admin)};
    front_ = *HttpFront::start(options, engine_, test::byte_tokenizer(), test::chat_template());
  }

  // Status of the path with this key ("": no header).
  int status(const std::string& path, const std::string& key, bool posts = false) {
    const std::string header = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    const std::string request = posts
                                    ? post(path, R"({"prompt":"x","tokens":[1]})", header)
                                    : "GET " + path + " HTTP/1.1\r\nHost: t\r\n" + header + "\r\n";
    return fetch(front_->port(), request).value_or(test::Response{}).status;
  }

  test::FakeEngine engine_;
  std::unique_ptr<HttpFront> front_;
};

TEST_F(AuthTest, WithoutKeysEverythingIsOpen) {
  start({}, "");
  EXPECT_EQ(status("/v1/models", ""), 200);
  EXPECT_EQ(status("/admin/peers", ""), 200);
  EXPECT_EQ(status("/v1/completions", "anything", true), 200);
}

TEST_F(AuthTest, AClientsKeyOpensEverythingUnlessThereIsAnAdministrators) {
  start({"one", "two"}, "");
  for (const char* path : {"/v1/models", "/load", "/v1/fault_tolerance/status", "/admin/peers"}) {
    EXPECT_EQ(status(path, ""), 401) << path;
    EXPECT_EQ(status(path, "three"), 401) << path;
    EXPECT_EQ(status(path, "on"), 401) << path;
    EXPECT_EQ(status(path, "one "), 200) << path;  // HTTP strips what follows
    EXPECT_EQ(status(path, "two"), 200) << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize",
                           "/admin/drain", "/start_profile", "/no/such/path"}) {
    EXPECT_EQ(status(path, "", true), 401) << path;
  }
  for (const char* path : {"/health", "/ready", "/ping", "/metrics", "/version"}) {
    EXPECT_EQ(status(path, ""), 200) << path;
  }
  EXPECT_EQ(engine_.submitted(), 0);
  EXPECT_FALSE(engine_.draining());
}

TEST_F(AuthTest, AdministrationNeedsTheAdministratorsKey) {
  start({"client"}, "admin");
  EXPECT_EQ(status("/admin/drain", "client", true), 403);
  EXPECT_EQ(status("/admin/drain", "", true), 401);
  EXPECT_FALSE(engine_.draining());
  EXPECT_EQ(status("/v1/completions", "client", true), 200);
  EXPECT_EQ(status("/v1/completions", "admin", true), 200);
  EXPECT_EQ(status("/admin/drain", "admin", true), 200);
  EXPECT_TRUE(engine_.draining());
}

TEST_F(AuthTest, RefusesBeforeTheBodyIsRead) {
  start({"key"}, "");
  test::Client client(front_->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 10000000\r\n\r\n");
  const auto response = client.receive();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 401);
  EXPECT_EQ(response->headers.at("www-authenticate"), "Bearer");
}

TEST(ApiKeyFile, IsReadLineByLineAndMustBePrivate) {
  const std::string path = testing::TempDir() + "asap-keys-" + std::to_string(getpid());
  std::ofstream(path) << "# keys\n\n  first  \r\nsecond\n";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(*read_api_keys(path), (std::vector<std::string>{"first", "second"}));
  chmod(path.c_str(), 0644);
  const auto open = read_api_keys(path);
  ASSERT_FALSE(open);
  EXPECT_NE(open.error().message.find("chmod 600"), std::string::npos) << open.error().message;
  std::ofstream(path) << "# nothing\n";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(read_api_keys(path).error().code, Code::invalid);
  std::filesystem::remove(path);
  EXPECT_EQ(read_api_keys(path).error().code, Code::not_found);
}

TEST(EqualKeys, ComparesWhole) {
  EXPECT_TRUE(equal_keys("abc", "abc"));
  EXPECT_FALSE(equal_keys("abc", "abd"));
  EXPECT_FALSE(equal_keys("ab", "abc"));
  EXPECT_FALSE(equal_keys("", "abc"));
}

}  // namespace
}  // namespace asap
