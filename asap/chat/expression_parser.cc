#include "asap/chat/expression_parser.h"

#include <algorithm>
#include <array>

namespace asap::jinja {

namespace {

constexpr int kMaxLevels = 200;  // of expressions inside expressions
constexpr int kMaxDepth = 200;   // of a tree, also of one that grows to the left

template <typename... Parts>
std::vector<ExprPtr> list_of(Parts... parts) {
  std::vector<ExprPtr> out;
  (out.push_back(std::move(parts)), ...);
  return out;
}

Result<ExprPtr> constant(Value value, int line) {
  auto expr = std::make_unique<Expr>();
  expr->line = line;
  expr->value = std::move(value);
  return expr;
}

}  // namespace

// Counts how deep the parser stands in itself.
class ExpressionParser::Level {
 public:
  explicit Level(ExpressionParser& parser) : parser_(parser) { ++parser_.level_; }
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  Status check() const {
    if (parser_.level_ <= kMaxLevels) return {};
    return fail(Code::invalid, "line {}: an expression is nested deeper than {} levels",
                parser_.tokens_.line(), kMaxLevels);
  }

 private:
  ExpressionParser& parser_;
};

Status ExpressionParser::measure(Expr& expr) const {
  int deepest = 0;
  for (const ExprPtr& part : expr.parts) deepest = std::max(deepest, part ? part->depth : 0);
  for (const auto& [name, value] : expr.named) deepest = std::max(deepest, value->depth);
  for (const ExprPtr* part : {&expr.spread.positional, &expr.spread.named}) {
    if (*part) deepest = std::max(deepest, (*part)->depth);
  }
  expr.depth = deepest + 1;
  if (expr.depth <= kMaxDepth) return {};
  return fail(Code::invalid, "line {}: an expression is nested deeper than {} levels", expr.line,
              kMaxDepth);
}

Result<ExprPtr> ExpressionParser::make(Expr::Kind kind, int line, std::vector<ExprPtr> parts) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->parts = std::move(parts);
  ASAP_TRY(measure(*expr));
  return expr;
}

Result<ExprPtr> ExpressionParser::tuple(bool with_conditional) {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  bool commas = false;
  const auto at_end = [&] {
    return tokens_.is(TokenKind::variable_end) || tokens_.is(TokenKind::block_end) ||
           tokens_.is_op(")") || tokens_.is_name("recursive");
  };
  while (!at_end()) {
    ASAP_ASSIGN(ExprPtr part, with_conditional ? conditional() : disjunction());
    parts.push_back(std::move(part));
    if (!tokens_.skip_op(",")) break;
    commas = true;
  }
  if (!commas) {
    if (parts.empty()) return tokens_.unexpected("an expression");
    return std::move(parts[0]);
  }
  return make(Expr::Kind::tuple, line, std::move(parts));
}

Result<ExprPtr> ExpressionParser::conditional() {
  const Level level(*this);
  ASAP_TRY(level.check());
  int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr expr, disjunction());
  while (tokens_.skip_name("if")) {
    ASAP_ASSIGN(ExprPtr condition, disjunction());
    ExprPtr otherwise;
    if (tokens_.skip_name("else")) {
      ASAP_ASSIGN(otherwise, conditional());
    }
    ASAP_ASSIGN(expr, make(Expr::Kind::conditional, line,
                           list_of(std::move(expr), std::move(condition), std::move(otherwise))));
    line = tokens_.line();
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::disjunction() {
  const int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr left, conjunction());
  while (tokens_.skip_name("or")) {
    ASAP_ASSIGN(ExprPtr right, conjunction());
    ASAP_ASSIGN(left,
                make(Expr::Kind::disjunction, line, list_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::conjunction() {
  const int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr left, negation());
  while (tokens_.skip_name("and")) {
    ASAP_ASSIGN(ExprPtr right, negation());
    ASAP_ASSIGN(left,
                make(Expr::Kind::conjunction, line, list_of(std::move(left), std::move(right))));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::negation() {
  const Level level(*this);
  ASAP_TRY(level.check());
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return comparison();
  ASAP_ASSIGN(ExprPtr operand, negation());
  return make(Expr::Kind::negation, line, list_of(std::move(operand)));
}

Result<ExprPtr> ExpressionParser::comparison() {
  constexpr std::array<std::pair<std::string_view, Op>, 6> kOperators = {{
      {"==", Op::equal},
      {"!=", Op::unequal},
      {"<=", Op::less_equal},
      {"<", Op::less},
      {">=", Op::greater_equal},
      {">", Op::greater},
  }};
  const int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr first, sum());
  std::vector<ExprPtr> parts;
  parts.push_back(std::move(first));
  std::vector<Op> ops;
  while (true) {
    const auto* const found = std::find_if(kOperators.begin(), kOperators.end(),
                                           [&](const auto& o) { return tokens_.is_op(o.first); });
    if (found != kOperators.end()) {
      tokens_.take();
      ops.push_back(found->second);
    } else if (tokens_.skip_name("in")) {
      ops.push_back(Op::in);
    } else if (tokens_.is_name("not") && tokens_.after().kind == TokenKind::name &&
               tokens_.after().text == "in") {
      tokens_.take();
      tokens_.take();
      ops.push_back(Op::not_in);
    } else {
      break;
    }
    ASAP_ASSIGN(ExprPtr next, sum());
    parts.push_back(std::move(next));
  }
  if (ops.empty()) return std::move(parts[0]);
  ASAP_ASSIGN(ExprPtr expr, make(Expr::Kind::comparison, line, std::move(parts)));
  expr->ops = std::move(ops);
  return expr;
}

Result<ExprPtr> ExpressionParser::left_to_right(
    Result<ExprPtr> (ExpressionParser::*operand)(),
    std::vector<std::pair<std::string_view, Op>> operators) {
  const int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr left, (this->*operand)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const auto& o) { return tokens_.is_op(o.first); });
    if (found == operators.end()) return left;
    tokens_.take();
    ASAP_ASSIGN(ExprPtr right, (this->*operand)());
    ASAP_ASSIGN(left, make(Expr::Kind::binary, line, list_of(std::move(left), std::move(right))));
    left->ops = {found->second};
  }
}

Result<ExprPtr> ExpressionParser::sum() {
  return left_to_right(&ExpressionParser::concat, {{"+", Op::add}, {"-", Op::subtract}});
}

Result<ExprPtr> ExpressionParser::concat() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  do {
    ASAP_ASSIGN(ExprPtr part, product());
    parts.push_back(std::move(part));
  } while (tokens_.skip_op("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(Expr::Kind::concat, line, std::move(parts));
}

Result<ExprPtr> ExpressionParser::product() {
  return left_to_right(
      &ExpressionParser::power,
      {{"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}});
}

Result<ExprPtr> ExpressionParser::power() {
  const int line = tokens_.line();
  ASAP_ASSIGN(ExprPtr left, unary(true));
  while (tokens_.skip_op("**")) {
    ASAP_ASSIGN(ExprPtr right, unary(true));
    ASAP_ASSIGN(left, make(Expr::Kind::binary, line, list_of(std::move(left), std::move(right))));
    left->ops = {Op::power};
  }
  return left;
}

Result<ExprPtr> ExpressionParser::unary(bool with_filter) {
  const Level level(*this);
  ASAP_TRY(level.check());
  const int line = tokens_.line();
  for (const auto& [text, kind] : {std::pair("-", Expr::Kind::minus), {"+", Expr::Kind::plus}}) {
    if (!tokens_.skip_op(text)) continue;
    ASAP_ASSIGN(ExprPtr operand, unary(false));
    ASAP_ASSIGN(ExprPtr expr, make(kind, line, list_of(std::move(operand))));
    return postfix(std::move(expr), with_filter);
  }
  ASAP_ASSIGN(ExprPtr expr, primary());
  return postfix(std::move(expr), with_filter);
}

Result<ExprPtr> ExpressionParser::primary() {
  const int line = tokens_.line();
  switch (tokens_.now().kind) {
    case TokenKind::name: return name();
    case TokenKind::number: return constant(tokens_.take().value, line);
    case TokenKind::string: {
      std::string text = tokens_.take().value.as_string();
      while (tokens_.is(TokenKind::string)) text += tokens_.take().value.as_string();
      return constant(Value::text(std::move(text)), line);
    }
    default: break;
  }
  if (tokens_.skip_op("(")) return parenthesis();
  if (tokens_.skip_op("[")) return list();
  if (tokens_.skip_op("{")) return dict();
  return tokens_.unexpected("an expression");
}

Result<ExprPtr> ExpressionParser::name() {
  constexpr std::array<std::string_view, 7> kWords = {"and", "or", "not", "in", "is", "if", "else"};
  if (std::find(kWords.begin(), kWords.end(), tokens_.now().text) != kWords.end()) {
    return tokens_.unexpected("an expression");
  }
  const Token token = tokens_.take();
  if (token.text == "true" || token.text == "True") {
    return constant(Value::boolean(true), token.line);
  }
  if (token.text == "false" || token.text == "False") {
    return constant(Value::boolean(false), token.line);
  }
  if (token.text == "none" || token.text == "None") return constant(Value::none(), token.line);
  ASAP_ASSIGN(ExprPtr expr, make(Expr::Kind::name, token.line, {}));
  expr->name = token.text;
  expr->value = Value::text(token.text);
  for (MacroNode* macro : open_macros_) {
    macro->uses_varargs = macro->uses_varargs || token.text == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || token.text == "kwargs";
    macro->uses_caller = macro->uses_caller || token.text == "caller";
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::parenthesis() {
  const int line = tokens_.line();
  if (tokens_.skip_op(")")) return make(Expr::Kind::tuple, line, {});
  ASAP_ASSIGN(ExprPtr expr, tuple(true));
  ASAP_TRY(tokens_.expect_op(")"));
  return expr;
}

Result<ExprPtr> ExpressionParser::list() {
  const int line = tokens_.line();
  std::vector<ExprPtr> items;
  while (!tokens_.is_op("]")) {
    if (!items.empty()) ASAP_TRY(tokens_.expect_op(","));
    if (tokens_.is_op("]")) break;
    ASAP_ASSIGN(ExprPtr item, expression());
    items.push_back(std::move(item));
  }
  ASAP_TRY(tokens_.expect_op("]"));
  return make(Expr::Kind::list, line, std::move(items));
}

Result<ExprPtr> ExpressionParser::dict() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  while (!tokens_.is_op("}")) {
    if (!parts.empty()) ASAP_TRY(tokens_.expect_op(","));
    if (tokens_.is_op("}")) break;
    ASAP_ASSIGN(ExprPtr key, expression());
    ASAP_TRY(tokens_.expect_op(":"));
    ASAP_ASSIGN(ExprPtr value, expression());
    parts.push_back(std::move(key));
    parts.push_back(std::move(value));
  }
  ASAP_TRY(tokens_.expect_op("}"));
  return make(Expr::Kind::dict, line, std::move(parts));
}

Result<ExprPtr> ExpressionParser::postfix(ExprPtr expr, bool with_filter) {
  // Filters and tests bind after the first run of subscripts and calls; after them only calls may
  // follow.
  bool filtered = false;
  while (true) {
    if (!filtered && (tokens_.is_op(".") || tokens_.is_op("["))) {
      ASAP_ASSIGN(expr, subscript(std::move(expr)));
    } else if (tokens_.is_op("(")) {
      ASAP_ASSIGN(expr, make(Expr::Kind::call, tokens_.line(), list_of(std::move(expr))));
      ASAP_TRY(arguments(*expr));
    } else if (with_filter && tokens_.is_op("|")) {
      filtered = true;
      tokens_.take();
      ASAP_ASSIGN(expr, filter(std::move(expr)));
    } else if (with_filter && tokens_.is_name("is")) {
      filtered = true;
      ASAP_ASSIGN(expr, test(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::subscript(ExprPtr expr) {
  const int line = tokens_.line();
  if (!tokens_.skip_op(".")) return bracket(std::move(expr));
  if (tokens_.is(TokenKind::number) && tokens_.now().value.is(Kind::integer)) {
    ASAP_ASSIGN(ExprPtr index, constant(tokens_.take().value, line));
    return make(Expr::Kind::item, line, list_of(std::move(expr), std::move(index)));
  }
  ASAP_ASSIGN(std::string attribute, tokens_.take_name());
  ASAP_ASSIGN(ExprPtr made, make(Expr::Kind::attribute, line, list_of(std::move(expr))));
  made->value = Value::text(attribute);
  made->name = std::move(attribute);
  return made;
}

// [index], [from:to:step] or [a, b].
Result<ExprPtr> ExpressionParser::bracket(ExprPtr expr) {
  const int line = tokens_.line();
  ASAP_TRY(tokens_.expect_op("["));
  std::vector<ExprPtr> bounds(1);
  while (!tokens_.is_op("]") && !tokens_.is_op(",")) {
    if (tokens_.skip_op(":")) {
      bounds.emplace_back();
    } else if (bounds.back()) {
      return tokens_.unexpected("]");
    } else {
      ASAP_ASSIGN(bounds.back(), expression());
    }
  }
  if (tokens_.is_op(",") || bounds.size() > 3) {
    return fail(Code::unsupported, "line {}: a subscript with \"{}\" is not supported", line,
                tokens_.is_op(",") ? "," : ":::");
  }
  ASAP_TRY(tokens_.expect_op("]"));
  if (bounds.size() == 1) {
    if (!bounds[0]) return fail(Code::invalid, "line {}: a subscript is empty", line);
    return make(Expr::Kind::item, line, list_of(std::move(expr), std::move(bounds[0])));
  }
  bounds.resize(3);
  return make(
      Expr::Kind::slice, line,
      list_of(std::move(expr), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])));
}

Result<ExprPtr> ExpressionParser::filter(ExprPtr operand) {
  const int line = tokens_.line();
  ASAP_ASSIGN(std::string name, tokens_.take_name());
  ASAP_ASSIGN(ExprPtr expr, make(Expr::Kind::filter, line, list_of(std::move(operand))));
  expr->name = std::move(name);
  if (tokens_.is_op("(")) ASAP_TRY(arguments(*expr));
  return expr;
}

Result<ExprPtr> ExpressionParser::filters(ExprPtr operand, bool inline_start) {
  while (inline_start || tokens_.skip_op("|")) {
    inline_start = false;
    ASAP_ASSIGN(operand, filter(std::move(operand)));
  }
  return operand;
}

Result<ExprPtr> ExpressionParser::test(ExprPtr operand) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  ASAP_ASSIGN(std::string name, tokens_.take_name());
  ASAP_ASSIGN(ExprPtr expr, make(Expr::Kind::test, line, list_of(std::move(operand))));
  expr->name = std::move(name);
  const bool operand_follows = tokens_.is(TokenKind::string) || tokens_.is(TokenKind::number) ||
                               tokens_.is_op("[") || tokens_.is_op("{") ||
                               (tokens_.is(TokenKind::name) && !tokens_.is_name("else") &&
                                !tokens_.is_name("or") && !tokens_.is_name("and"));
  if (tokens_.is_op("(")) {
    ASAP_TRY(arguments(*expr));
  } else if (tokens_.is_name("is")) {
    return tokens_.unexpected("the end of the test: tests cannot be chained");
  } else if (operand_follows) {
    ASAP_ASSIGN(ExprPtr argument, primary());
    ASAP_ASSIGN(argument, postfix(std::move(argument), false));
    expr->parts.push_back(std::move(argument));
    ASAP_TRY(measure(*expr));
  }
  if (!negated) return expr;
  return make(Expr::Kind::negation, line, list_of(std::move(expr)));
}

Status ExpressionParser::arguments(Expr& call) {
  const Level level(*this);
  ASAP_TRY(level.check());
  ASAP_TRY(tokens_.expect_op("("));
  bool first = true;
  while (!tokens_.is_op(")")) {
    if (!std::exchange(first, false)) ASAP_TRY(tokens_.expect_op(","));
    if (tokens_.is_op(")")) break;
    const bool named = tokens_.is(TokenKind::name) && tokens_.after().kind == TokenKind::op &&
                       tokens_.after().text == "=";
    const bool starred = call.spread.positional || call.spread.named;
    if (tokens_.skip_op("*")) {
      if (starred) return tokens_.unexpected("one list of arguments");
      ASAP_ASSIGN(call.spread.positional, expression());
    } else if (tokens_.skip_op("**")) {
      if (call.spread.named) return tokens_.unexpected("one dict of arguments");
      ASAP_ASSIGN(call.spread.named, expression());
    } else if (named && !call.spread.named) {
      std::string name = tokens_.take().text;
      tokens_.take();
      ASAP_ASSIGN(ExprPtr value, expression());
      call.named.emplace_back(std::move(name), std::move(value));
    } else if (!named && !starred && call.named.empty()) {
      ASAP_ASSIGN(ExprPtr value, expression());
      call.parts.push_back(std::move(value));
    } else {
      return tokens_.unexpected("the arguments in order: values, name=value, *list, **dict");
    }
  }
  ASAP_TRY(tokens_.expect_op(")"));
  return measure(call);
}

}  // namespace asap::jinja
