// The parser of expressions; the one of statements (parser.cc) asks it for what stands inside tags.
#pragma once

#include <string>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/ast.h"
#include "asap/chat/token_stream.h"

namespace asap::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExprPtr> expression() { return conditional(); }
  // Several expressions with commas between make a tuple. `conditional`: whether "a if b else c"
  // may stand there.
  Result<ExprPtr> tuple(bool conditional);
  // | name(...) | ... after a block's tag; `inline_start`: the first comes without its bar.
  Result<ExprPtr> filters(ExprPtr operand, bool inline_start);

  // The macros whose bodies are being read; they learn which special names these use.
  std::vector<MacroNode*>& open_macros() { return open_macros_; }

 private:
  class Level;

  Result<ExprPtr> conditional();
  Result<ExprPtr> disjunction();
  Result<ExprPtr> conjunction();
  Result<ExprPtr> negation();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concat();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary(bool with_filter);
  Result<ExprPtr> primary();
  Result<ExprPtr> name();
  Result<ExprPtr> parenthesis();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr expr, bool with_filter);
  Result<ExprPtr> subscript(ExprPtr expr);
  Result<ExprPtr> bracket(ExprPtr expr);
  Result<ExprPtr> filter(ExprPtr operand);
  Result<ExprPtr> test(ExprPtr operand);
  Status arguments(Expr& call);
  // Parts of lower or equal precedence on the left: a op b op c.
  Result<ExprPtr> left_to_right(Result<ExprPtr> (ExpressionParser::*operand)(),
                                std::vector<std::pair<std::string_view, Op>> operators);

  Result<ExprPtr> make(Expr::Kind kind, int line, std::vector<ExprPtr> parts);
  Status measure(Expr& expr) const;

  TokenStream& tokens_;
  std::vector<MacroNode*> open_macros_;
  int level_ = 0;
};

}  // namespace asap::jinja
