#include "asap/chat/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "asap/chat/print.h"
#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

// Builds values from the library's parser, which checks the text and hands over the raw number.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      return add(Value::big_integer(std::to_string(value)));
    }
    return add(Value::integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& raw) override {
    // An integer that no machine word holds arrives here too.
    if (raw.find_first_of(".eE") == raw.npos) return add(Value::big_integer(raw));
    return add(Value::real(value));
  }
  bool string(std::string& value) override { return add(Value::text(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool key(std::string& name) override {
    levels_.back().key = std::move(name);
    return true;
  }
  bool end_object() override { return close(levels_.back().dict.finish()); }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return close(make_list(std::move(levels_.back().items))); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    const std::string_view what = error.what();
    const size_t tag = what.find("] ");
    problem_ = fmt::format("invalid JSON at byte {}: {}", position,
                           tag == what.npos ? what : what.substr(tag + 2));
    return false;
  }

 private:
  struct Level {
    bool object = false;
    std::string key;
    DictBuilder dict;
    std::vector<Value> items;
  };

  bool add(Value value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (levels_.back().object) {
      levels_.back().dict.set(std::move(levels_.back().key), std::move(value));
    } else {
      levels_.back().items.push_back(std::move(value));
    }
    return true;
  }
  bool open(bool object) {
    if (levels_.size() == static_cast<size_t>(kMaxJsonDepth)) {
      problem_ = fmt::format("invalid JSON: nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    levels_.emplace_back().object = object;
    return true;
  }
  bool close(Value value) {
    levels_.pop_back();
    return add(std::move(value));
  }

  std::vector<Level> levels_;
  Value root_;
  std::string problem_;
};

void append_unit(uint32_t unit, std::string& out) {
  out += fmt::format("\\u{:04x}", unit);
}

void append_quoted(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    const auto code = static_cast<uint32_t>(c.code);
    switch (code) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
          append_unit(code, out);
        } else if (ensure_ascii && code >= 0x10000) {
          append_unit(0xD800 + ((code - 0x10000) >> 10), out);
          append_unit(0xDC00 + ((code - 0x10000) & 0x3FF), out);
        } else {
          out += text.substr(at, c.length);
        }
    }
    at += c.length;
  }
  out += '"';
}

class Writer {
 public:
  Writer(const JsonStyle& style, std::string& out, Budget& budget)
      : style_(style), out_(out), budget_(budget) {}

  Status write(const Value& value, int level) {
    ASAP_TRY(budget_.spend(1));
    if (out_.size() > budget_.limits().output_bytes) {
      return fail(Code::invalid, "tojson: the text exceeds {} bytes",
                  budget_.limits().output_bytes);
    }
    switch (value.kind()) {
      case Kind::string:
        append_quoted(value.as_string(), style_.ensure_ascii, out_);
        return budget_.spend(value.as_string().size() / 16);
      case Kind::dict: return write_dict(value.dict(), level);
      case Kind::sequence:
        if (value.sequence().kind == SequenceKind::list ||
            value.sequence().kind == SequenceKind::tuple) {
          return write_list(value.sequence(), level);
        }
        break;
      default:
        if (const std::string text = scalar(value); !text.empty()) {
          out_ += text;
          return {};
        }
    }
    if (value.is_undefined()) {
      return fail(Code::invalid, "tojson: {}, and so has no JSON form", value.undefined_message());
    }
    return fail(Code::invalid, "tojson: a {} has no JSON form", value.type_name());
  }

 private:
  // The JSON of a number, truth value or none; "" for anything else.
  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none: return "null";
      case Kind::boolean: return value.as_bool() ? "true" : "false";
      case Kind::integer: return std::to_string(value.as_integer());
      case Kind::big_integer: return value.digits();
      case Kind::real:
        if (std::isnan(value.as_real())) return "NaN";
        if (std::isinf(value.as_real())) return value.as_real() < 0 ? "-Infinity" : "Infinity";
        return real_text(value.as_real());
      default: return "";
    }
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  Status write_list(const Sequence& list, int level) {
    if (list.items.empty()) {
      out_ += "[]";
      return {};
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      new_line(level + 1);
      ASAP_TRY(write(item, level + 1));
    }
    new_line(level);
    out_ += ']';
    return {};
  }

  Status write_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return {};
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) ASAP_TRY(sort(entries));
    out_ += '{';
    bool first = true;
    for (const auto* entry : entries) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      new_line(level + 1);
      const Value& key = entry->first;
      const std::string text = key.is_string() ? key.as_string() : scalar(key);
      if (text.empty() && !key.is_string()) {
        return fail(Code::invalid, "tojson: a {} cannot be a key", key.type_name());
      }
      append_quoted(text, style_.ensure_ascii, out_);
      out_ += style_.key_separator;
      ASAP_TRY(write(entry->second, level + 1));
    }
    new_line(level);
    out_ += '}';
    return {};
  }

  static Status sort(std::vector<const std::pair<Value, Value>*>& entries) {
    for (const auto* entry : entries) {
      if (!entry->first.is_string()) {
        return fail(Code::unsupported, "tojson: sort_keys with a key of type {} is not supported",
                    entry->first.type_name());
      }
    }
    std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
      return a->first.as_string() < b->first.as_string();
    });
    return {};
  }

  const JsonStyle& style_;
  std::string& out_;
  Budget& budget_;
};

}  // namespace

Result<Value> parse_json(std::string_view text) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text, &builder)) {
    return fail(Code::invalid, "{}",
                builder.problem().empty() ? "invalid JSON" : builder.problem());
  }
  return builder.take();
}

Status append_json(const Value& value, const JsonStyle& style, std::string& out, Budget& budget) {
  return Writer(style, out, budget).write(value, 0);
}

}  // namespace asap::jinja
