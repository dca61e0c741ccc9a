// Interpreter: one rendering of a parsed template.
//
// Names are looked up from the innermost scope outwards; loops, macros and blocks open scopes, `if`
// does not. What the language can do with values is spread over filters.h, predicates.h, methods.h
// and functions.h, which work through this class.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asap/base/result.h"
#include "asap/chat/arguments.h"
#include "asap/chat/ast.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

// Names and their values inside one block of the template.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names;

  Value* find(std::string_view name);
  void set(const std::string& name, Value value);
};

// A macro as it was defined: its text and the names around it.
struct MacroValue {
  const MacroNode* node = nullptr;
  std::shared_ptr<Scope> scope;
};

class Interpreter {
 public:
  // `variables` are a dict; `now` is the Unix time for strftime_now, in seconds.
  Interpreter(const Value& variables, int64_t now, const RenderLimits& limits);

  // The text of the template. An error begins with the line where it came up.
  Result<std::string> render(const Body& body);

  Budget& budget() { return budget_; }
  int64_t now() const { return now_; }

  // What filters, tests and functions need of the language.
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> filter(const std::string& name, const Value& operand, const Arguments& arguments);
  Result<bool> test(const std::string& name, const Value& operand, const Arguments& arguments);
  // object[key] and object.name; undefined if there is none.
  Result<Value> item(const Value& object, const Value& key);
  Result<Value> attribute(const Value& object, const Text& name);
  // All items of what can be iterated over; an iterator is used up by it.
  Result<std::shared_ptr<const std::vector<Value>>> items_of(const Value& value);
  Result<std::string> text_of(const Value& value);
  // A text of this rendering, within its bounds.
  Result<Value> text(std::string value);
  Namespace& new_namespace() { return namespaces_.emplace_back(); }

 private:
  enum class Flow : uint8_t { on, leave, next };
  class Nesting;

  // Statements (interpreter.cc).
  Result<Flow> run(const Body& body);
  Result<Flow> run(const Stmt& stmt);
  Result<Flow> run_conditional(const Stmt& stmt);
  Result<Flow> run_loop(const Stmt& stmt);
  Result<Flow> run_iterations(const Stmt& stmt, const std::shared_ptr<Loop>& loop);
  Result<std::shared_ptr<const std::vector<Value>>> loop_items(const Stmt& stmt);
  Result<Flow> run_scope(const Stmt& stmt);
  Status run_call_block(const Stmt& stmt);
  Status assign(const Target& target, const Value& value);
  Status assign_block(const Stmt& stmt);
  // Runs a body in a new scope and gives its text.
  Result<std::string> capture(const Body& body);
  Result<Value> through_filters(const Expr* filters, Value value);
  Value define(const MacroNode& node);
  Result<Value> call_macro(const MacroValue& macro, const Arguments& arguments);
  Status bind(const MacroNode& node, const Arguments& arguments, Scope& scope);

  // Expressions (expressions.cc).
  Result<Value> eval(const Expr& expr);
  Result<Value> evaluated(const Expr& expr);
  Result<Value> eval_name(const Expr& expr);
  Result<std::vector<Value>> eval_all(const std::vector<ExprPtr>& exprs);
  Result<Value> eval_dict(const Expr& expr);
  Result<Value> eval_slice(const Expr& expr);
  Result<Value> slice(const Value& object, const std::vector<Value>& bounds);
  Result<Value> eval_comparison(const Expr& expr);
  Result<Value> eval_concat(const Expr& expr);
  Result<Value> eval_operator(const Expr& expr);
  Result<Value> eval_conditional(const Expr& expr);
  Result<Value> eval_call(const Expr& expr, const Value* caller);
  Result<Value> eval_filter(const Expr& expr);
  Result<Value> eval_test(const Expr& expr);
  Result<Arguments> eval_arguments(const Expr& expr);

  tl::unexpected<Error> located(Error error, int line);

  Budget budget_;
  const int64_t now_;
  std::shared_ptr<Scope> scope_;
  std::string out_;  // of the innermost block that is being captured
  int nesting_ = 0;
  int macro_depth_ = 0;
  bool located_ = false;  // the error already has its line
  std::deque<MacroValue> macros_;
  std::deque<Namespace> namespaces_;
};

}  // namespace asap::jinja
