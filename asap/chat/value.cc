#include "asap/chat/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "asap/base/check.h"

namespace asap::jinja {

namespace {

constexpr size_t kIndexedFrom = 9;  // entries; below, a scan is as fast

int deepest_of(const std::vector<Value>& values) {
  int deepest = 0;
  for (const Value& value : values) deepest = std::max(deepest, value.depth());
  return deepest;
}

}  // namespace

Value Value::big_integer(std::string digits) {
  return Value(BigInteger{std::make_shared<const std::string>(std::move(digits))});
}

Value Value::text(std::string value) {
  return Value(String{std::make_shared<const std::string>(std::move(value)), false});
}

Value Value::safe_text(std::string value) {
  return Value(String{std::make_shared<const std::string>(std::move(value)), true});
}

Value Value::undefined(Text name, std::string_view owner) {
  return Value(Undefined{std::move(name), owner});
}

int64_t Value::as_integer() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  return std::get<int64_t>(data_);
}

double Value::as_real() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  return static_cast<double>(as_integer());
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return as_bool();
    case Kind::integer: return as_integer() != 0;
    case Kind::real: return as_real() != 0;
    case Kind::string: return !as_string().empty();
    case Kind::sequence: return !sequence().items.empty();
    case Kind::dict: return !dict().entries.empty();
    default: return true;
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::sequence: return sequence().depth;
    case Kind::dict: return dict().depth;
    case Kind::iterator: return iterator().depth;
    case Kind::loop: return loop().depth;
    case Kind::callable: return callable().self.depth() + 1;
    default: return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer:
    case Kind::big_integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return is_safe() ? "Markup" : "str";
    case Kind::dict: return "dict";
    case Kind::iterator: return "generator";
    case Kind::name_space: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::callable: return "function";
    case Kind::sequence: break;
  }
  switch (sequence().kind) {
    case SequenceKind::list: return "list";
    case SequenceKind::tuple: return "tuple";
    case SequenceKind::range: return "range";
    case SequenceKind::keys: return "dict_keys";
    case SequenceKind::values: return "dict_values";
    case SequenceKind::items: return "dict_items";
  }
  return "list";
}

std::string Value::undefined_message() const {
  const auto& undefined = std::get<Undefined>(data_);
  const std::string_view name = undefined.name ? std::string_view(*undefined.name) : "value";
  if (undefined.owner.empty()) return fmt::format("'{}' is undefined", name);
  if (undefined.owner.front() == '!') {
    return fmt::format("'{}' of a {} changes it, which templates may not", name,
                       undefined.owner.substr(1));
  }
  return fmt::format("'{} object' has no attribute '{}'", undefined.owner, name);
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

void DictBuilder::set(Value key, Value value) {
  CHECK(key.is_string());
  std::vector<std::pair<Value, Value>>& entries = dict_->entries;
  size_t at = entries.size();
  if (!dict_->index.empty()) {
    const auto it = dict_->index.find(key.as_string());
    if (it != dict_->index.end()) at = it->second;
  } else {
    at = static_cast<size_t>(std::find_if(entries.begin(), entries.end(),
                                          [&](const auto& entry) {
                                            return entry.first.is_string() &&
                                                   entry.first.as_string() == key.as_string();
                                          }) -
                             entries.begin());
  }
  if (at < entries.size()) return replace(at, std::move(value));
  append(std::move(key), std::move(value));
}

void DictBuilder::append(Value key, Value value) {
  std::vector<std::pair<Value, Value>>& entries = dict_->entries;
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexedFrom) return;
  const size_t first = dict_->index.empty() ? 0 : entries.size() - 1;
  for (size_t i = first; i < entries.size(); ++i) {
    if (entries[i].first.is_string()) dict_->index.emplace(entries[i].first.as_string(), i);
  }
}

Value DictBuilder::finish() {
  int deepest = 0;
  for (const auto& [key, value] : dict_->entries) {
    deepest = std::max({deepest, key.depth(), value.depth()});
  }
  dict_->depth = deepest + 1;
  return Value::of(std::shared_ptr<const Dict>(std::exchange(dict_, nullptr)));
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value make_sequence(SequenceKind kind, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  sequence->depth = deepest_of(items) + 1;
  sequence->items = std::move(items);
  return Value::of(std::shared_ptr<const Sequence>(std::move(sequence)));
}

Value make_iterator(std::vector<Value> items) {
  auto iterator = std::make_shared<Iterator>();
  iterator->depth = deepest_of(items) + 1;
  iterator->items = std::move(items);
  return Value::of(std::move(iterator));
}

}  // namespace asap::jinja
