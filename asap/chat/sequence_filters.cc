// Filters of lists and dicts.
#include <algorithm>

#include "asap/chat/filters.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/operators.h"
#include "asap/chat/text.h"
#include "asap/chat/text_case.h"

namespace asap::jinja {

namespace {

Value nothing(const char* what) {
  return Value::undefined(std::make_shared<const std::string>(what), "");
}

// A path of attributes: "role", "function.name", 0.
struct Path {
  std::vector<Value> parts;
};

Result<Path> parse_path(const Value& attribute) {
  Path path;
  if (attribute.is_none()) return path;
  if (!attribute.is_string()) {
    path.parts.push_back(attribute);
    return path;
  }
  for (const std::string_view part : split(attribute.as_string(), ".", kAll)) {
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (number && part.size() > 9) {
      return fail(Code::invalid, "the attribute \"{}\" is too long", part);
    }
    path.parts.push_back(number ? Value::integer(std::stoi(std::string(part)))
                                : Value::text(std::string(part)));
  }
  return path;
}

Result<Value> follow(Interpreter& interpreter, const Path& path, Value value) {
  for (const Value& part : path.parts) {
    ASAP_ASSIGN(value, interpreter.item(value, part));
  }
  return value;
}

// What a value is compared by: itself, or in lower case.
Result<Value> folded(const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  ASAP_ASSIGN(std::string text, lower(value.as_string()));
  return Value::text(std::move(text));
}

Result<std::shared_ptr<const std::vector<Value>>> items(const FilterCall& call) {
  return call.interpreter.items_of(call.operand);
}

Result<Value> filter_length(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  switch (call.operand.kind()) {
    case Kind::undefined: return number(0);
    case Kind::string: return number(length(call.operand.as_string()));
    case Kind::sequence: return number(call.operand.sequence().items.size());
    case Kind::dict: return number(call.operand.dict().entries.size());
    case Kind::loop: return number(call.operand.loop().items->size());
    default: break;
  }
  return fail(Code::invalid, "a {} has no length", call.operand.type_name());
}

Result<Value> filter_first(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is(Kind::iterator)) {
    Iterator& iterator = call.operand.iterator();
    if (iterator.next == iterator.items.size()) return nothing("the first item of nothing");
    return iterator.items[iterator.next++];
  }
  ASAP_ASSIGN(const auto all, items(call));
  return all->empty() ? nothing("the first item of nothing") : all->front();
}

Result<Value> filter_last(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is(Kind::iterator)) {
    return fail(Code::invalid, "the last item of a generator cannot be had: use |list before");
  }
  ASAP_ASSIGN(const auto all, items(call));
  return all->empty() ? nothing("the last item of nothing") : all->back();
}

Result<Value> filter_list(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  ASAP_ASSIGN(const auto all, items(call));
  ASAP_TRY(call.interpreter.budget().make(all->size() * sizeof(Value)));
  return make_list(*all);
}

Result<Value> filter_join(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"d", "attribute"}));
  std::string separator;
  if (bound.has(0)) {
    ASAP_ASSIGN(separator, call.interpreter.text_of(bound.at(0)));
  }
  Path path;
  if (bound.given(1)) {
    ASAP_ASSIGN(path, parse_path(bound.at(1)));
  }
  ASAP_ASSIGN(const auto all, items(call));
  std::string out;
  for (size_t i = 0; i < all->size(); ++i) {
    ASAP_ASSIGN(const Value value, follow(call.interpreter, path, (*all)[i]));
    ASAP_ASSIGN(const std::string text, call.interpreter.text_of(value));
    ASAP_TRY(call.interpreter.budget().make(separator.size()));
    if (i > 0) out += separator;
    out += text;
  }
  return call.interpreter.text(std::move(out));
}

Result<Value> filter_items(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  std::vector<Value> pairs;
  if (call.operand.is(Kind::dict)) {
    const auto& entries = call.operand.dict().entries;
    ASAP_TRY(call.interpreter.budget().make(entries.size() * 4 * sizeof(Value)));
    for (const auto& [key, value] : entries) {
      pairs.push_back(make_sequence(SequenceKind::tuple, {key, value}));
    }
  } else if (!call.operand.is_undefined()) {
    return fail(Code::invalid, "items needs a dict, not a {}", call.operand.type_name());
  }
  return make_iterator(std::move(pairs));
}

Result<Value> filter_reverse(const FilterCall& call) {
  ASAP_TRY(call.bind({}));
  if (call.operand.is_safe()) {
    return fail(Code::unsupported, "the filter reverse of a text marked safe is not supported");
  }
  ASAP_ASSIGN(const auto all, items(call));
  if (call.operand.is_string()) {
    std::string out;
    for (auto it = all->rbegin(); it != all->rend(); ++it) out += it->as_string();
    return call.interpreter.text(std::move(out));
  }
  std::vector<Value> reversed(all->rbegin(), all->rend());
  // Python makes a list of what cannot be read backwards.
  if (call.operand.is(Kind::iterator)) return make_list(std::move(reversed));
  return make_iterator(std::move(reversed));
}

// Sorts `order`, positions into `keys`, stably; the first comparison that fails is the result.
Status sort_by(const std::vector<std::vector<Value>>& keys, std::vector<size_t>& order,
               bool reverse, Budget& budget) {
  Status status;
  const auto before = [&](const std::vector<Value>& a, const std::vector<Value>& b) {
    for (size_t i = 0; i < a.size() && status; ++i) {
      const auto same = equal(a[i], b[i], budget);
      if (same && *same) continue;
      const auto smaller = same ? less(a[i], b[i], budget) : same;
      if (smaller) return *smaller;
      status = tl::unexpected<Error>(smaller.error());
    }
    return false;
  };
  // A merge sort of our own: std::sort may not be given a comparison that turns inconsistent.
  std::vector<size_t> spare(order.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin, right = middle;
      for (size_t to = begin; to < end; ++to) {
        const bool take_right =
            right < end &&
            (left == middle || (reverse ? before(keys[order[left]], keys[order[right]])
                                        : before(keys[order[right]], keys[order[left]])));
        spare[to] = order[take_right ? right++ : left++];
      }
      if (!status) return status;
    }
    order.swap(spare);
  }
  return status;
}

Result<std::vector<Value>> sorted(const FilterCall& call, const std::vector<Value>& all,
                                  const std::vector<std::vector<Value>>& keys, bool reverse) {
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  ASAP_TRY(sort_by(keys, order, reverse, call.interpreter.budget()));
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(all[i]);
  ASAP_TRY(call.interpreter.budget().make(out.size() * sizeof(Value)));
  return out;
}

Result<Value> filter_sort(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = bound.truth(1, false);
  std::vector<Path> paths(1);
  if (bound.given(2) && bound.at(2).is_string()) {
    paths.clear();
    for (const std::string_view one : split(bound.at(2).as_string(), ",", kAll)) {
      ASAP_ASSIGN(Path path, parse_path(Value::text(std::string(one))));
      paths.push_back(std::move(path));
    }
  } else if (bound.given(2)) {
    ASAP_ASSIGN(paths[0], parse_path(bound.at(2)));
  }
  ASAP_ASSIGN(const auto all, items(call));
  std::vector<std::vector<Value>> keys;
  for (const Value& item : *all) {
    std::vector<Value>& key = keys.emplace_back();
    for (const Path& path : paths) {
      ASAP_ASSIGN(const Value value, follow(call.interpreter, path, item));
      ASAP_ASSIGN(Value one, folded(value, case_sensitive));
      key.push_back(std::move(one));
    }
  }
  ASAP_ASSIGN(std::vector<Value> out, sorted(call, *all, keys, bound.truth(0, false)));
  return make_list(std::move(out));
}

Result<Value> filter_dictsort(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"case_sensitive", "by", "reverse"}));
  ASAP_ASSIGN(const std::string by, bound.text(1, "key"));
  if (by != "key" && by != "value") {
    return fail(Code::invalid, "dictsort sorts by \"key\" or \"value\"");
  }
  if (!call.operand.is(Kind::dict)) {
    return fail(Code::invalid, "dictsort needs a dict, not a {}", call.operand.type_name());
  }
  std::vector<Value> pairs;
  std::vector<std::vector<Value>> keys;
  const auto& entries = call.operand.dict().entries;
  ASAP_TRY(call.interpreter.budget().make(entries.size() * 4 * sizeof(Value)));
  for (const auto& [key, value] : entries) {
    ASAP_ASSIGN(Value one, folded(by == "key" ? key : value, bound.truth(0, false)));
    keys.push_back({std::move(one)});
    pairs.push_back(make_sequence(SequenceKind::tuple, {key, value}));
  }
  ASAP_ASSIGN(std::vector<Value> out, sorted(call, pairs, keys, bound.truth(2, false)));
  return make_list(std::move(out));
}

Result<Value> filter_unique(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"case_sensitive", "attribute"}));
  Path path;
  if (bound.given(1)) {
    ASAP_ASSIGN(path, parse_path(bound.at(1)));
  }
  ASAP_ASSIGN(const auto all, items(call));
  DictBuilder seen;
  std::vector<Value> out;
  for (const Value& item : *all) {
    ASAP_ASSIGN(const Value value, follow(call.interpreter, path, item));
    ASAP_ASSIGN(Value key, folded(value, bound.truth(0, false)));
    const size_t before = seen.so_far().entries.size();
    ASAP_TRY(set_entry(seen, std::move(key), Value(), call.interpreter.budget()));
    if (seen.so_far().entries.size() > before) out.push_back(item);
  }
  return make_iterator(std::move(out));
}

Result<Value> filter_min_or_max(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"case_sensitive", "attribute"}));
  Path path;
  if (bound.given(1)) {
    ASAP_ASSIGN(path, parse_path(bound.at(1)));
  }
  ASAP_ASSIGN(const auto all, items(call));
  if (all->empty()) return nothing("the smallest or largest item of nothing");
  Value best, best_key;
  for (size_t i = 0; i < all->size(); ++i) {
    ASAP_ASSIGN(const Value value, follow(call.interpreter, path, (*all)[i]));
    ASAP_ASSIGN(Value key, folded(value, bound.truth(0, false)));
    bool better = i == 0;
    if (!better) {
      ASAP_ASSIGN(better, call.name == "min" ? less(key, best_key, call.interpreter.budget())
                                             : less(best_key, key, call.interpreter.budget()));
    }
    if (!better) continue;
    best = (*all)[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> filter_sum(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"attribute", "start"}));
  Path path;
  if (bound.given(0)) {
    ASAP_ASSIGN(path, parse_path(bound.at(0)));
  }
  Value total = bound.has(1) ? bound.at(1) : Value::integer(0);
  if (total.is_string()) return fail(Code::invalid, "sum does not add strings: use join");
  ASAP_ASSIGN(const auto all, items(call));
  for (const Value& item : *all) {
    ASAP_ASSIGN(const Value value, follow(call.interpreter, path, item));
    ASAP_ASSIGN(total, calculate(Op::add, total, value, call.interpreter.budget()));
  }
  return total;
}

Result<Value> filter_batch(const FilterCall& call) {
  ASAP_ASSIGN(const Bound bound, call.bind({"linecount", "fill_with"}, 1));
  ASAP_ASSIGN(const int64_t size, bound.integer(0, 1));
  if (size < 1 || size > 100'000) return fail(Code::invalid, "batch: a size of {}", size);
  ASAP_ASSIGN(const auto all, items(call));
  const auto step = static_cast<size_t>(size);
  std::vector<Value> batches;
  for (size_t i = 0; i < all->size(); i += step) {
    const auto from = all->begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<Value> batch(from,
                             from + static_cast<std::ptrdiff_t>(std::min(step, all->size() - i)));
    if (bound.given(1)) batch.resize(step, bound.at(1));
    ASAP_TRY(call.interpreter.budget().make(batch.size() * sizeof(Value)));
    batches.push_back(make_list(std::move(batch)));
  }
  return make_iterator(std::move(batches));
}

// ---- filters that apply filters and tests

// The arguments behind the first `skip`.
Arguments rest_of(const Arguments& arguments, size_t skip) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(skip));
  return rest;
}

Result<std::string> name_at(const FilterCall& call, size_t i, std::string_view what) {
  const std::vector<Value>& given = call.arguments.positional;
  if (i < given.size() && given[i].is_string()) return given[i].as_string();
  return fail(Code::invalid, "the filter {} needs the name of {}", call.name, what);
}

Result<Value> filter_map(const FilterCall& call) {
  if (!call.operand.truth()) return make_iterator({});
  std::vector<Value> out;
  if (call.arguments.positional.empty()) {
    ASAP_ASSIGN(const Bound bound, call.bind({"attribute", "default"}, 1));
    ASAP_ASSIGN(const Path path, parse_path(bound.at(0)));
    ASAP_ASSIGN(const auto all, items(call));
    for (const Value& item : *all) {
      ASAP_ASSIGN(Value value, follow(call.interpreter, path, item));
      if (value.is_undefined() && bound.given(1)) value = bound.at(1);
      out.push_back(std::move(value));
    }
    return make_iterator(std::move(out));
  }
  ASAP_ASSIGN(const std::string name, name_at(call, 0, "a filter"));
  const Arguments rest = rest_of(call.arguments, 1);
  ASAP_ASSIGN(const auto all, items(call));
  for (const Value& item : *all) {
    ASAP_ASSIGN(Value value, call.interpreter.filter(name, item, rest));
    out.push_back(std::move(value));
  }
  return make_iterator(std::move(out));
}

// select, reject, selectattr, rejectattr.
Result<Value> filter_select(const FilterCall& call) {
  if (!call.operand.truth()) return make_iterator({});
  const bool wanted = call.name.starts_with("select");
  const bool by_attribute = call.name.ends_with("attr");
  Path path;
  if (by_attribute) {
    if (call.arguments.positional.empty()) {
      return fail(Code::invalid, "the filter {} needs an attribute", call.name);
    }
    ASAP_ASSIGN(path, parse_path(call.arguments.positional[0]));
  }
  const size_t at = by_attribute ? 1 : 0;
  std::string test;
  if (call.arguments.positional.size() > at) {
    ASAP_ASSIGN(test, name_at(call, at, "a test"));
  }
  const Arguments rest = rest_of(call.arguments, test.empty() ? at : at + 1);
  ASAP_ASSIGN(const auto all, items(call));
  std::vector<Value> out;
  for (const Value& item : *all) {
    ASAP_ASSIGN(const Value value, follow(call.interpreter, path, item));
    bool holds = value.truth();
    if (!test.empty()) {
      ASAP_ASSIGN(holds, call.interpreter.test(test, value, rest));
    }
    if (holds == wanted) out.push_back(item);
  }
  ASAP_TRY(call.interpreter.budget().make(out.size() * sizeof(Value)));
  return make_iterator(std::move(out));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"length", filter_length},     {"count", filter_length},      {"first", filter_first},
    {"last", filter_last},         {"list", filter_list},         {"join", filter_join},
    {"items", filter_items},       {"reverse", filter_reverse},   {"sort", filter_sort},
    {"dictsort", filter_dictsort}, {"unique", filter_unique},     {"min", filter_min_or_max},
    {"max", filter_min_or_max},    {"sum", filter_sum},           {"batch", filter_batch},
    {"map", filter_map},           {"select", filter_select},     {"reject", filter_select},
    {"selectattr", filter_select}, {"rejectattr", filter_select},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace asap::jinja
