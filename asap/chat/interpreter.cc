#include "asap/chat/interpreter.h"

#include <algorithm>

#include "asap/chat/print.h"

namespace asap::jinja {

Value* Scope::find(std::string_view name) {
  for (auto& [key, value] : names) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  if (Value* found = find(name)) {
    *found = std::move(value);
  } else {
    names.emplace_back(name, std::move(value));
  }
}

// Counts how deep the interpreter stands in itself.
class Interpreter::Nesting {
 public:
  explicit Nesting(Interpreter& interpreter) : interpreter_(interpreter) {
    ++interpreter_.nesting_;
  }
  ~Nesting() { --interpreter_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  Status check() const {
    const int limit = interpreter_.budget_.limits().nesting;
    if (interpreter_.nesting_ <= limit) return {};
    return fail(Code::invalid, "the template is nested deeper than {} levels", limit);
  }

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(const Value& variables, int64_t now, const RenderLimits& limits)
    : budget_(limits), now_(now), scope_(std::make_shared<Scope>()) {
  for (const auto& [name, value] : variables.dict().entries) {
    scope_->set(name.as_string(), value);
  }
}

Result<std::string> Interpreter::render(const Body& body) {
  // What the template sets at its top may hide a variable, but does not replace it.
  const auto variables = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->outer = variables;
  const auto flow = run(body);
  if (!flow) return tl::unexpected<Error>(flow.error());
  return std::move(out_);
}

tl::unexpected<Error> Interpreter::located(Error error, int line) {
  if (!std::exchange(located_, true)) {
    error.message = fmt::format("line {}: {}", line, error.message);
  }
  return tl::unexpected<Error>(std::move(error));
}

Result<Interpreter::Flow> Interpreter::run(const Body& body) {
  for (const StmtPtr& stmt : body) {
    auto flow = run(*stmt);
    if (!flow) return located(std::move(flow).error(), stmt->line);
    if (*flow != Flow::on) return flow;
  }
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::run(const Stmt& stmt) {
  const Nesting nesting(*this);
  ASAP_TRY(nesting.check());
  ASAP_TRY(budget_.spend(1));
  switch (stmt.kind) {
    case Stmt::Kind::text: {
      out_ += stmt.text;
      ASAP_TRY(append_str(Value(), out_, budget_));  // checks the size
      return Flow::on;
    }
    case Stmt::Kind::output: {
      ASAP_ASSIGN(const Value value, eval(*stmt.exprs[0]));
      ASAP_TRY(append_str(value, out_, budget_));
      return Flow::on;
    }
    case Stmt::Kind::conditional: return run_conditional(stmt);
    case Stmt::Kind::loop: return run_loop(stmt);
    case Stmt::Kind::assign: {
      ASAP_ASSIGN(const Value value, eval(*stmt.exprs[0]));
      ASAP_TRY(assign(stmt.targets[0], value));
      return Flow::on;
    }
    case Stmt::Kind::assign_block: {
      ASAP_TRY(assign_block(stmt));
      return Flow::on;
    }
    case Stmt::Kind::macro: {
      ASAP_TRY(budget_.make(sizeof(MacroValue) + sizeof(Callable) + sizeof(Scope)));
      scope_->set(stmt.macro->name, define(*stmt.macro));
      return Flow::on;
    }
    case Stmt::Kind::call_block: {
      ASAP_TRY(run_call_block(stmt));
      return Flow::on;
    }
    case Stmt::Kind::filter_block: {
      ASAP_ASSIGN(std::string text, capture(stmt.bodies[0]));
      ASAP_ASSIGN(const Value value,
                  through_filters(stmt.exprs[0].get(), Value::text(std::move(text))));
      ASAP_TRY(append_str(value, out_, budget_));
      return Flow::on;
    }
    case Stmt::Kind::with:
    case Stmt::Kind::scope: return run_scope(stmt);
    case Stmt::Kind::leave: return Flow::leave;
    case Stmt::Kind::next: return Flow::next;
  }
  return Flow::on;
}

Result<Interpreter::Flow> Interpreter::run_conditional(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    ASAP_ASSIGN(const Value condition, eval(*stmt.exprs[i]));
    if (condition.truth()) return run(stmt.bodies[i]);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) return run(stmt.bodies.back());
  return Flow::on;
}

// ---- loops

Result<std::shared_ptr<const std::vector<Value>>> Interpreter::loop_items(const Stmt& stmt) {
  ASAP_ASSIGN(const Value value, eval(*stmt.exprs[0]));
  ASAP_ASSIGN(auto items, items_of(value));
  if (!stmt.exprs[1]) return items;
  auto kept = std::make_shared<std::vector<Value>>();
  for (const Value& item : *items) {
    const auto outer = scope_;
    scope_ = std::make_shared<Scope>();
    scope_->outer = outer;
    const Status assigned = assign(stmt.targets[0], item);
    auto chosen = assigned ? eval(*stmt.exprs[1]) : tl::unexpected<Error>(assigned.error());
    scope_ = outer;
    ASAP_ASSIGN(const Value condition, std::move(chosen));
    if (condition.truth()) kept->push_back(item);
  }
  return kept;
}

Result<Interpreter::Flow> Interpreter::run_loop(const Stmt& stmt) {
  const auto loop = std::make_shared<Loop>();
  ASAP_ASSIGN(loop->items, loop_items(stmt));
  const auto outer = scope_;
  if (loop->items->empty()) {
    scope_ = std::make_shared<Scope>();
    scope_->outer = outer;
    auto flow = run(stmt.bodies[1]);
    scope_ = outer;
    return flow;
  }
  for (const Value& item : *loop->items) loop->depth = std::max(loop->depth, item.depth() + 1);
  if (loop->depth > kMaxValueDepth) {
    return fail(Code::invalid, "a value is nested deeper than {} levels", kMaxValueDepth);
  }
  auto flow = run_iterations(stmt, loop);
  scope_ = outer;
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_iterations(const Stmt& stmt,
                                                      const std::shared_ptr<Loop>& loop) {
  const auto outer = scope_;
  for (; loop->index0 < loop->items->size(); ++loop->index0) {
    ASAP_TRY(budget_.spend(1));
    scope_ = std::make_shared<Scope>();
    scope_->outer = outer;
    scope_->set("loop", Value::of(loop));
    ASAP_TRY(assign(stmt.targets[0], (*loop->items)[loop->index0]));
    ASAP_ASSIGN(const Flow flow, run(stmt.bodies[0]));
    if (flow == Flow::leave) break;
  }
  return Flow::on;
}

// ---- assignments

Status Interpreter::assign(const Target& target, const Value& value) {
  if (target.tuple) {
    if (value.is_undefined()) return fail(Code::invalid, "{}", value.undefined_message());
    ASAP_ASSIGN(const auto items, items_of(value));
    if (items->size() != target.parts.size()) {
      return fail(Code::invalid, "{} values cannot be assigned to {} names", items->size(),
                  target.parts.size());
    }
    for (size_t i = 0; i < items->size(); ++i) ASAP_TRY(assign(target.parts[i], (*items)[i]));
    return {};
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return {};
  }
  Value owner;
  for (Scope* scope = scope_.get(); scope; scope = scope->outer.get()) {
    if (const Value* found = scope->find(target.name)) {
      owner = *found;
      break;
    }
  }
  if (!owner.is(Kind::name_space)) {
    return fail(Code::invalid, "{}.{} cannot be set: {} is not a namespace", target.name,
                target.attribute, target.name);
  }
  Namespace& space = owner.name_space();
  if (Value* found = space.find(target.attribute)) {
    *found = value;
  } else {
    ASAP_TRY(budget_.make(sizeof(Value) + target.attribute.size()));
    space.attributes.emplace_back(target.attribute, value);
  }
  return {};
}

Status Interpreter::assign_block(const Stmt& stmt) {
  ASAP_ASSIGN(std::string text, capture(stmt.bodies[0]));
  ASAP_ASSIGN(const Value value,
              through_filters(stmt.exprs[0].get(), Value::text(std::move(text))));
  return assign(stmt.targets[0], value);
}

Result<std::string> Interpreter::capture(const Body& body) {
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->outer = outer;
  std::string saved = std::exchange(out_, {});
  const auto flow = run(body);
  saved.swap(out_);  // `saved` is now the text of the body
  scope_ = outer;
  if (!flow) return tl::unexpected<Error>(flow.error());
  ASAP_TRY(budget_.make(saved.size()));
  return saved;
}

// `filters` is a chain whose innermost operand is missing.
Result<Value> Interpreter::through_filters(const Expr* filters, Value value) {
  if (!filters) return value;
  ASAP_ASSIGN(const Value operand, through_filters(filters->parts[0].get(), std::move(value)));
  ASAP_ASSIGN(const Arguments arguments, eval_arguments(*filters));
  return filter(filters->name, operand, arguments);
}

Result<Interpreter::Flow> Interpreter::run_scope(const Stmt& stmt) {
  const auto outer = scope_;
  const auto inner = std::make_shared<Scope>();
  inner->outer = outer;
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    ASAP_ASSIGN(const Value value, eval(*stmt.exprs[i]));
    scope_ = inner;
    const Status assigned = assign(stmt.targets[i], value);
    scope_ = outer;
    ASAP_TRY(assigned);
  }
  scope_ = inner;
  auto flow = run(stmt.bodies[0]);
  scope_ = outer;
  return flow;
}

// ---- macros

Value Interpreter::define(const MacroNode& node) {
  MacroValue& macro = macros_.emplace_back();
  macro.node = &node;
  macro.scope = scope_;
  auto callable = std::make_shared<Callable>();
  callable->what = Callable::What::macro;
  callable->name = node.name;
  callable->macro = &macro;
  return Value::of(std::shared_ptr<const Callable>(std::move(callable)));
}

Status Interpreter::run_call_block(const Stmt& stmt) {
  ASAP_TRY(budget_.make(sizeof(MacroValue) + sizeof(Callable) + sizeof(Scope)));
  const Value caller = define(*stmt.macro);
  ASAP_ASSIGN(const Value value, eval_call(*stmt.exprs[0], &caller));
  return append_str(value, out_, budget_);
}

Result<Value> Interpreter::call_macro(const MacroValue& macro, const Arguments& arguments) {
  if (macro_depth_ == budget_.limits().macro_depth) {
    return fail(Code::invalid, "macros call one another deeper than {} levels",
                budget_.limits().macro_depth);
  }
  const auto outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->outer = macro.scope;
  std::string saved = std::exchange(out_, {});
  ++macro_depth_;
  Status status = bind(*macro.node, arguments, *scope_);
  if (status) {
    const auto flow = run(macro.node->body);
    if (!flow) status = tl::unexpected<Error>(flow.error());
  }
  --macro_depth_;
  saved.swap(out_);
  scope_ = outer;
  ASAP_TRY(status);
  return text(std::move(saved));
}

Status Interpreter::bind(const MacroNode& node, const Arguments& arguments, Scope& scope) {
  const size_t count = node.parameters.size();
  if (arguments.positional.size() > count && !node.uses_varargs) {
    return fail(Code::invalid, "the macro {} takes at most {} arguments; {} are given", node.name,
                count, arguments.positional.size());
  }
  std::vector<bool> given(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = node.parameters[i].name;
    Value value = Value::undefined(std::make_shared<const std::string>(name), "");
    given[i] = i < arguments.positional.size();
    if (given[i]) value = arguments.positional[i];
    scope.set(name, std::move(value));
  }
  DictBuilder rest;
  Value caller = Value::undefined(std::make_shared<const std::string>("caller"), "");
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const Value& value = argument.second;
    const auto found = std::find_if(node.parameters.begin(), node.parameters.end(),
                                    [&](const Parameter& p) { return p.name == name; });
    const auto i = static_cast<size_t>(found - node.parameters.begin());
    if (i < count && !given[i]) {
      given[i] = true;
      scope.set(name, value);
    } else if (name == "caller" && node.uses_caller) {
      caller = value;
    } else if (node.uses_kwargs) {
      rest.set(name, value);
    } else {
      return fail(Code::invalid, "the macro {} has no argument \"{}\" to set", node.name, name);
    }
  }
  if (node.uses_caller) scope.set("caller", caller);
  if (node.uses_kwargs) scope.set("kwargs", rest.finish());
  if (node.uses_varargs) {
    std::vector<Value> more;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      more.push_back(arguments.positional[i]);
    }
    scope.set("varargs", make_sequence(SequenceKind::tuple, std::move(more)));
  }
  // A default may use the arguments before it.
  for (size_t i = 0; i < count; ++i) {
    if (given[i] || !node.parameters[i].fallback) continue;
    ASAP_ASSIGN(Value value, eval(*node.parameters[i].fallback));
    scope.set(node.parameters[i].name, std::move(value));
  }
  return {};
}

}  // namespace asap::jinja
