#include "asap/chat/parser.h"

#include <algorithm>
#include <array>

#include "asap/chat/expression_parser.h"
#include "asap/chat/token_stream.h"
#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

constexpr int kMaxBlocks = 100;  // inside one another

// Tags of Jinja and of its usual extensions that are not interpreted.
constexpr std::array<std::string_view, 11> kUnsupportedTags = {
    "block", "extends", "include",    "import", "from",     "print",
    "do",    "trans",   "autoescape", "debug",  "pluralize"};

StmtPtr make(Stmt::Kind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  Result<Body> run() { return statements({}); }

 private:
  using Ends = std::vector<std::string_view>;

  // Statements up to the template's end, or to a block tag named by `ends`, of which the name has
  // been looked at only.
  Result<Body> statements(const Ends& ends) {
    Body body;
    while (!tokens_.is(TokenKind::end)) {
      const int line = tokens_.line();
      if (tokens_.is(TokenKind::data)) {
        body.push_back(make(Stmt::Kind::text, line));
        body.back()->text = tokens_.take().text;
      } else if (tokens_.is(TokenKind::variable_begin)) {
        tokens_.take();
        body.push_back(make(Stmt::Kind::output, line));
        ASAP_ASSIGN(ExprPtr expr, expressions_.tuple(true));
        body.back()->exprs.push_back(std::move(expr));
        ASAP_TRY(tokens_.expect(TokenKind::variable_end));
      } else {
        ASAP_TRY(tokens_.expect(TokenKind::block_begin));
        const auto ends_here = [&](std::string_view end) { return tokens_.is_name(end); };
        if (std::any_of(ends.begin(), ends.end(), ends_here)) return body;
        ASAP_ASSIGN(StmtPtr stmt, statement());
        body.push_back(std::move(stmt));
        ASAP_TRY(tokens_.expect(TokenKind::block_end));
      }
    }
    if (ends.empty()) return body;
    return tokens_.unexpected(fmt::format("{{% {} %}}", ends.back()));
  }

  // What a block tag encloses; the tag that ends it has been looked at.
  Result<Body> block(const Ends& ends) {
    tokens_.skip_op(":");
    ASAP_TRY(tokens_.expect(TokenKind::block_end));
    if (++blocks_ > kMaxBlocks) {
      return fail(Code::invalid, "line {}: blocks are nested deeper than {} levels", tokens_.line(),
                  kMaxBlocks);
    }
    auto body = statements(ends);
    --blocks_;
    return body;
  }
  Result<Body> whole_block(std::string_view end) {
    ASAP_ASSIGN(Body body, block({end}));
    ASAP_TRY(tokens_.expect_name(end));
    return body;
  }

  Result<StmtPtr> statement() {
    const int line = tokens_.line();
    ASAP_ASSIGN(const std::string tag, tokens_.take_name());
    if (tag == "if") return conditional(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return assignment(line);
    if (tag == "macro") return macro(line);
    if (tag == "call") return call_block(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "with") return with(line);
    if (tag == "generation") return generation(line);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return fail(Code::invalid, "line {}: {} outside of a loop", line, tag);
      return make(tag == "break" ? Stmt::Kind::leave : Stmt::Kind::next, line);
    }
    if (std::find(kUnsupportedTags.begin(), kUnsupportedTags.end(), tag) !=
        kUnsupportedTags.end()) {
      return fail(Code::unsupported, "line {}: the tag {{% {} %}} is not supported", line, tag);
    }
    return fail(Code::invalid, "line {}: unknown tag \"{}\"", line, tag);
  }

  Result<StmtPtr> conditional(int line) {
    StmtPtr stmt = make(Stmt::Kind::conditional, line);
    while (true) {
      ASAP_ASSIGN(ExprPtr condition, expressions_.tuple(false));
      ASAP_ASSIGN(Body body, block({"elif", "else", "endif"}));
      stmt->exprs.push_back(std::move(condition));
      stmt->bodies.push_back(std::move(body));
      if (!tokens_.skip_name("elif")) break;
    }
    if (tokens_.skip_name("else")) {
      ASAP_ASSIGN(Body otherwise, block({"endif"}));
      stmt->bodies.push_back(std::move(otherwise));
    }
    ASAP_TRY(tokens_.expect_name("endif"));
    return stmt;
  }

  Result<StmtPtr> loop(int line) {
    StmtPtr stmt = make(Stmt::Kind::loop, line);
    ASAP_ASSIGN(Target target, assign_target(false));
    stmt->targets.push_back(std::move(target));
    ASAP_TRY(tokens_.expect_name("in"));
    ASAP_ASSIGN(ExprPtr items, expressions_.tuple(false));
    stmt->exprs.push_back(std::move(items));
    ExprPtr filter;
    if (tokens_.skip_name("if")) {
      ASAP_ASSIGN(filter, expressions_.expression());
    }
    stmt->exprs.push_back(std::move(filter));
    if (tokens_.is_name("recursive")) {
      return fail(Code::unsupported, "line {}: recursive loops are not supported", line);
    }
    ++loops_;
    auto body = block({"else", "endfor"});
    --loops_;
    ASAP_ASSIGN(Body inside, std::move(body));
    stmt->bodies.push_back(std::move(inside));
    Body otherwise;
    if (tokens_.skip_name("else")) {
      ASAP_ASSIGN(otherwise, block({"endfor"}));
    }
    stmt->bodies.push_back(std::move(otherwise));
    ASAP_TRY(tokens_.expect_name("endfor"));
    return stmt;
  }

  Result<StmtPtr> assignment(int line) {
    ASAP_ASSIGN(Target target, assign_target(true));
    const bool simple = tokens_.skip_op("=");
    StmtPtr stmt = make(simple ? Stmt::Kind::assign : Stmt::Kind::assign_block, line);
    stmt->targets.push_back(std::move(target));
    if (simple) {
      ASAP_ASSIGN(ExprPtr value, expressions_.tuple(true));
      stmt->exprs.push_back(std::move(value));
      return stmt;
    }
    ASAP_ASSIGN(ExprPtr filters, expressions_.filters(nullptr, false));
    stmt->exprs.push_back(std::move(filters));
    ASAP_ASSIGN(Body body, closed_block("endset"));
    stmt->bodies.push_back(std::move(body));
    return stmt;
  }

  // A block from which break and continue cannot leave.
  Result<Body> closed_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    auto body = whole_block(end);
    loops_ = loops;
    return body;
  }

  Result<Target> assign_target(bool attributes) {
    Target tuple;
    tuple.tuple = true;
    bool commas = false;
    do {
      if (tokens_.is_name("in") || tokens_.is_op(")") || tokens_.is(TokenKind::block_end)) break;
      ASAP_ASSIGN(Target part, one_target(attributes));
      tuple.parts.push_back(std::move(part));
    } while (tokens_.skip_op(",") && (commas = true));
    if (tuple.parts.empty()) return tokens_.unexpected("a name to assign to");
    if (!commas) return std::move(tuple.parts[0]);
    return tuple;
  }

  Result<Target> one_target(bool attributes) {
    if (tokens_.is_op("(")) {
      if (++blocks_ > kMaxBlocks) return tokens_.unexpected("a name to assign to");
      tokens_.take();
      ASAP_ASSIGN(Target inner, assign_target(attributes));
      --blocks_;
      ASAP_TRY(tokens_.expect_op(")"));
      return inner;
    }
    constexpr std::array<std::string_view, 13> kTaken = {"true", "false", "none", "True", "False",
                                                         "None", "and",   "or",   "not",  "in",
                                                         "is",   "if",    "else"};
    if (std::find(kTaken.begin(), kTaken.end(), tokens_.now().text) != kTaken.end()) {
      return tokens_.unexpected("a name to assign to");
    }
    Target target;
    ASAP_ASSIGN(target.name, tokens_.take_name());
    if (attributes && tokens_.skip_op(".")) {
      ASAP_ASSIGN(target.attribute, tokens_.take_name());
    }
    return target;
  }

  Result<StmtPtr> macro(int line) {
    StmtPtr stmt = make(Stmt::Kind::macro, line);
    stmt->macro = std::make_unique<MacroNode>();
    ASAP_ASSIGN(stmt->macro->name, tokens_.take_name());
    ASAP_TRY(parameters(*stmt->macro));
    ASAP_TRY(macro_body(*stmt->macro, "endmacro"));
    return stmt;
  }

  Status parameters(MacroNode& macro) {
    ASAP_TRY(tokens_.expect_op("("));
    while (!tokens_.is_op(")")) {
      if (!macro.parameters.empty()) ASAP_TRY(tokens_.expect_op(","));
      Parameter parameter;
      ASAP_ASSIGN(parameter.name, tokens_.take_name());
      if (tokens_.skip_op("=")) {
        ASAP_ASSIGN(parameter.fallback, expressions_.expression());
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
        return tokens_.unexpected("a default, as the parameter before has one");
      }
      if (parameter.name == "caller" || parameter.name == "varargs" || parameter.name == "kwargs") {
        return fail(Code::unsupported, "line {}: a parameter named {} is not supported",
                    tokens_.line(), parameter.name);
      }
      macro.parameters.push_back(std::move(parameter));
    }
    return tokens_.expect_op(")");
  }

  Status macro_body(MacroNode& macro, std::string_view end) {
    expressions_.open_macros().push_back(&macro);
    auto body = closed_block(end);
    expressions_.open_macros().pop_back();
    ASAP_ASSIGN(macro.body, std::move(body));
    return {};
  }

  Result<StmtPtr> call_block(int line) {
    StmtPtr stmt = make(Stmt::Kind::call_block, line);
    stmt->macro = std::make_unique<MacroNode>();
    stmt->macro->name = "caller";
    if (tokens_.is_op("(")) ASAP_TRY(parameters(*stmt->macro));
    ASAP_ASSIGN(ExprPtr call, expressions_.expression());
    if (call->kind != Expr::Kind::call) {
      return fail(Code::invalid, "line {}: {{% call %}} needs a call: write name(...)", line);
    }
    stmt->exprs.push_back(std::move(call));
    ASAP_TRY(macro_body(*stmt->macro, "endcall"));
    return stmt;
  }

  Result<StmtPtr> filter_block(int line) {
    StmtPtr stmt = make(Stmt::Kind::filter_block, line);
    ASAP_ASSIGN(ExprPtr filters, expressions_.filters(nullptr, true));
    stmt->exprs.push_back(std::move(filters));
    ASAP_ASSIGN(Body body, closed_block("endfilter"));
    stmt->bodies.push_back(std::move(body));
    return stmt;
  }

  Result<StmtPtr> with(int line) {
    StmtPtr stmt = make(Stmt::Kind::with, line);
    while (!tokens_.is(TokenKind::block_end)) {
      if (!stmt->targets.empty()) ASAP_TRY(tokens_.expect_op(","));
      ASAP_ASSIGN(Target target, one_target(false));
      ASAP_TRY(tokens_.expect_op("="));
      ASAP_ASSIGN(ExprPtr value, expressions_.expression());
      stmt->targets.push_back(std::move(target));
      stmt->exprs.push_back(std::move(value));
    }
    ASAP_ASSIGN(Body body, whole_block("endwith"));
    stmt->bodies.push_back(std::move(body));
    return stmt;
  }

  // Hugging Face's mark around what the assistant says: text as any other, in a scope of its own.
  Result<StmtPtr> generation(int line) {
    StmtPtr stmt = make(Stmt::Kind::scope, line);
    ASAP_ASSIGN(Body body, closed_block("endgeneration"));
    stmt->bodies.push_back(std::move(body));
    return stmt;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int blocks_ = 0;
  int loops_ = 0;
};

}  // namespace

Result<Body> parse_template(std::string_view source) {
  if (!is_utf8(source)) return fail(Code::invalid, "the template is not UTF-8");
  ASAP_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace asap::jinja
