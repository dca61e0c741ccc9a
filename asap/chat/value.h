// Values of the template language: Python's, as far as templates see them.
//
// Everything but namespaces and iterators is immutable and shared, so a copy of a Value is cheap.
// Macros and namespaces belong to one rendering (interpreter.h) and are pointed to; no value keeps
// another alive in a circle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace asap::jinja {

struct Sequence;
struct Dict;
struct Iterator;
struct Namespace;
struct Loop;
struct Callable;

using Text = std::shared_ptr<const std::string>;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  big_integer,  // beyond 64 bits: printed and compared, never calculated with
  real,
  string,
  sequence,
  dict,
  iterator,
  name_space,
  loop,
  callable,
};

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(None{}); }
  static Value boolean(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }
  static Value big_integer(std::string digits);
  static Value real(double value) { return Value(value); }
  static Value text(std::string value);
  static Value text(Text value) { return Value(String{std::move(value), false}); }
  // Marked safe: escape() leaves it alone, and what is added to it is escaped.
  static Value safe_text(std::string value);
  static Value of(std::shared_ptr<const Sequence> value) { return Value(std::move(value)); }
  static Value of(std::shared_ptr<const Dict> value) { return Value(std::move(value)); }
  static Value of(std::shared_ptr<Iterator> value) { return Value(std::move(value)); }
  static Value of(std::shared_ptr<const Callable> value) { return Value(std::move(value)); }
  static Value of(std::shared_ptr<Loop> value) { return Value(std::move(value)); }
  static Value of(Namespace* value) { return Value(value); }
  // `owner` is what lacks the name ("dict"), "" for a variable; with a ! in front, what has it but
  // does not give it to templates. A static string.
  static Value undefined(Text name, std::string_view owner);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind_asked) const { return kind() == kind_asked; }
  bool is_string() const { return is(Kind::string); }
  bool is_safe() const { return is_string() && std::get<String>(data_).safe; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  // int, including bool, as in Python.
  bool is_integral() const { return is(Kind::integer) || is(Kind::boolean); }
  bool is_number() const { return is_integral() || is(Kind::real); }

  // Each only if the kind is right.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_integer() const;  // also of a boolean
  double as_real() const;      // of any number
  const std::string& digits() const { return *std::get<BigInteger>(data_).digits; }
  const std::string& as_string() const { return *std::get<String>(data_).text; }
  const Text& shared_text() const { return std::get<String>(data_).text; }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const std::shared_ptr<const Sequence>& shared_sequence() const {
    return std::get<std::shared_ptr<const Sequence>>(data_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Iterator& iterator() const { return *std::get<std::shared_ptr<Iterator>>(data_); }
  Namespace& name_space() const { return *std::get<Namespace*>(data_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  bool truth() const;
  // How deep values hold values; 0 for one that holds none. A namespace counts as 0.
  int depth() const;
  // Python's name of the type: "str", "dict".
  std::string_view type_name() const;
  // Of an undefined value: what was looked up in vain.
  std::string undefined_message() const;

 private:
  struct None {};
  struct BigInteger {
    Text digits;
  };
  struct String {
    Text text;
    bool safe = false;
  };
  struct Undefined {
    Text name;
    std::string_view owner;
  };
  using Data = std::variant<Undefined, None, bool, int64_t, BigInteger, double, String,
                            std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Iterator>, Namespace*, std::shared_ptr<Loop>,
                            std::shared_ptr<const Callable>>;  // in the order of Kind

  template <typename T>
  explicit Value(T data) : data_(std::move(data)) {}

  Data data_;
};

enum class SequenceKind : uint8_t { list, tuple, range, keys, values, items };

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  int depth = 1;
};

// In order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  // Positions of string keys; filled if there are more than a few. The views are into the keys.
  std::unordered_map<std::string_view, size_t> index;
  int depth = 1;

  const Value* find(std::string_view key) const;
};

// Builds a dict; a later value of a key replaces an earlier one, in its place.
class DictBuilder {
 public:
  DictBuilder() : dict_(std::make_shared<Dict>()) {}
  void set(Value key, Value value);  // the key is a string
  void set(std::string key, Value value) { set(Value::text(std::move(key)), std::move(value)); }
  // Any other key, which the caller knows to be new, or knows the place of.
  void append(Value key, Value value);
  void replace(size_t at, Value value) { dict_->entries[at].second = std::move(value); }
  const Dict& so_far() const { return *dict_; }
  Value finish();

 private:
  std::shared_ptr<Dict> dict_;
};

// What Python's generators and iterators are: each item comes once.
struct Iterator {
  std::vector<Value> items;
  size_t next = 0;
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  Value* find(std::string_view name);
};

// The `loop` variable.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0 = 0;
  size_t depth0 = 0;
  Value last_changed;  // the arguments of the last loop.changed(), or undefined
  int depth = 1;
};

struct MacroValue;  // interpreter.h

// A function of the language, a method bound to its object, or a macro.
struct Callable {
  enum class What : uint8_t { function, method, macro };
  What what = What::function;
  std::string name;
  Value self;                         // methods
  const MacroValue* macro = nullptr;  // macros
};

// A list of any kind, with its depth.
Value make_sequence(SequenceKind kind, std::vector<Value> items);
inline Value make_list(std::vector<Value> items) {
  return make_sequence(SequenceKind::list, std::move(items));
}
Value make_iterator(std::vector<Value> items);

}  // namespace asap::jinja
