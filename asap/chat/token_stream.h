// TokenStream: the parser's place among the tokens, and the error at that place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/lexer.h"

namespace asap::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return now().line; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_op(std::string_view text) const { return is(TokenKind::op) && now().text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::name) && now().text == text; }
  bool skip_op(std::string_view text) { return is_op(text) && skip(); }
  bool skip_name(std::string_view text) { return is_name(text) && skip(); }

  Status expect(TokenKind kind) {
    if (!is(kind)) return unexpected(describe(kind));
    take();
    return {};
  }
  Status expect_op(std::string_view text) {
    if (!skip_op(text)) return unexpected(text);
    return {};
  }
  Status expect_name(std::string_view text) {
    if (!skip_name(text)) return unexpected(text);
    return {};
  }
  Result<std::string> take_name() {
    if (!is(TokenKind::name)) return unexpected("a name");
    return take().text;
  }

  tl::unexpected<Error> unexpected(std::string_view wanted) const {
    return asap::fail(Code::invalid, "line {}: {} found, {} expected", line(), shown(), wanted);
  }
  std::string shown() const {
    switch (now().kind) {
      case TokenKind::name:
      case TokenKind::op: return fmt::format("\"{}\"", now().text);
      default: return std::string(describe(now().kind));
    }
  }

 private:
  bool skip() {
    take();
    return true;
  }
  static std::string_view describe(TokenKind kind) {
    switch (kind) {
      case TokenKind::data: return "text";
      case TokenKind::variable_begin: return "{{";
      case TokenKind::variable_end: return "}}";
      case TokenKind::block_begin: return "{%";
      case TokenKind::block_end: return "%}";
      case TokenKind::name: return "a name";
      case TokenKind::string: return "a string";
      case TokenKind::number: return "a number";
      case TokenKind::op: return "an operator";
      case TokenKind::end: return "the end of the template";
    }
    return "";
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace asap::jinja
