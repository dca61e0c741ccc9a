// The tree of a parsed template. Built once by the parser, then only read, by any number of
// renderings at once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "asap/chat/value.h"

namespace asap::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

enum class Op : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

// *args and **kwargs of a call.
struct Spread {
  ExprPtr positional, named;
};

struct Expr {
  enum class Kind : uint8_t {
    constant,     // value
    name,         // name
    list,         // parts
    tuple,        // parts
    dict,         // parts: key, value, key, value, ...
    attribute,    // parts[0] . name
    item,         // parts[0] [ parts[1] ]
    slice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], each of the three may be null
    call,         // parts[0] ( parts[1..], named )
    filter,       // parts[0] | name ( parts[1..], named ); parts[0] is null in a filter block
    test,         // parts[0] is name ( parts[1..], named )
    negation,     // not parts[0]
    minus,        // - parts[0]
    plus,         // + parts[0]
    conjunction,  // parts[0] and parts[1]
    disjunction,  // parts[0] or parts[1]
    binary,       // parts[0] ops[0] parts[1]
    comparison,   // parts[0] ops[0] parts[1] ops[1] parts[2] ..., chained as in Python
    concat,       // parts joined by ~
    conditional,  // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind = Kind::constant;
  int line = 0;
  int depth = 1;  // of the tree below
  Value value;    // a constant; the name as text, for messages
  std::string name;
  std::vector<Op> ops;
  std::vector<ExprPtr> parts;
  std::vector<std::pair<std::string, ExprPtr>> named;
  Spread spread;
};

// What is assigned to: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;      // "": the name itself
  std::vector<Target> parts;  // not empty: a tuple
  bool tuple = false;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // may be null
};

// Of a macro, and of a call block, whose body is a macro named caller.
struct MacroNode {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  enum class Kind : uint8_t {
    text,          // text
    output,        // exprs[0]
    conditional,   // if exprs[0] bodies[0] elif exprs[1] bodies[1] ...; one more body: else
    loop,          // for target in exprs[0] if exprs[1] (or null): bodies[0], else bodies[1]
    assign,        // target = exprs[0]
    assign_block,  // target = bodies[0] through the filters exprs[0] (or null)
    macro,         // macro
    call_block,    // call exprs[0] with macro as its caller
    filter_block,  // bodies[0] through the filters exprs[0]
    with,          // targets[i] = exprs[i] around bodies[0]
    scope,         // bodies[0] in a scope of its own
    leave,         // break
    next,          // continue
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  std::vector<Target> targets;
  std::unique_ptr<MacroNode> macro;
};

}  // namespace asap::jinja
