#include "asap/chat/text.h"

#include <algorithm>

#include "asap/model/utf8.h"

namespace asap::jinja {

namespace {

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

// Start of the last character of `text`, which is not empty.
size_t last_start(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

std::vector<std::string_view> split_space(std::string_view text, size_t limit) {
  std::vector<std::string_view> parts;
  text = strip(text, std::nullopt, true, false);
  while (!text.empty() && parts.size() < limit) {
    size_t end = 0;
    while (end < text.size()) {
      const Utf8Char c = utf8_at(text, end);
      if (is_space(c.code)) break;
      end += c.length;
    }
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, true, false);
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_space_right(std::string_view text, size_t limit) {
  std::vector<std::string_view> parts;
  text = strip(text, std::nullopt, false, true);
  while (!text.empty() && parts.size() < limit) {
    size_t begin = text.size();
    while (begin > 0) {
      const size_t start = last_start(text.substr(0, begin));
      if (is_space(utf8_at(text, start).code)) break;
      begin = start;
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), std::nullopt, false, true);
  }
  if (!text.empty()) parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t length(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t offset_of(std::string_view text, size_t index) {
  if (index >= text.size()) return text.size();
  if (is_ascii(text.substr(0, index + 1))) return index;
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += utf8_at(text, at).length;
  return at;
}

std::string_view substring(std::string_view text, size_t from, size_t to) {
  if (from >= to) return {};
  const size_t begin = offset_of(text, from);
  return text.substr(begin, offset_of(text.substr(begin), to - from));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_at(text, at).length;
    out.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return out;
}

std::string_view strip(std::string_view text, const std::optional<std::string_view>& chars,
                       bool left, bool right) {
  const auto goes = [&](std::string_view c) {
    return chars ? chars->find(c) != std::string_view::npos : is_space(utf8_at(c, 0).code);
  };
  while (left && !text.empty()) {
    const size_t bytes = utf8_at(text, 0).length;
    if (!goes(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (right && !text.empty()) {
    const size_t start = last_start(text);
    if (!goes(text.substr(start))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    size_t limit) {
  if (separator.empty()) return split_space(text, limit);
  std::vector<std::string_view> parts;
  for (size_t end; parts.size() < limit && (end = text.find(separator)) != text.npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          size_t limit) {
  if (separator.empty()) return split_space_right(text, limit);
  std::vector<std::string_view> parts;
  for (size_t at; parts.size() < limit && (at = text.rfind(separator)) != text.npos;) {
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    size_t next = at + c.length;
    if (is_line_end(c.code)) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return length(text) + 1;
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by,
                    size_t limit) {
  std::string out;
  if (old.empty()) {
    size_t at = 0;
    for (size_t done = 0; done < limit; ++done) {
      out += by;
      if (at == text.size()) return out;
      const size_t bytes = utf8_at(text, at).length;
      out += text.substr(at, bytes);
      at += bytes;
    }
    return out += text.substr(at);
  }
  for (size_t at; limit > 0 && (at = text.find(old)) != text.npos; --limit) {
    out += text.substr(0, at);
    out += by;
    text.remove_prefix(at + old.size());
  }
  return out += text;
}

}  // namespace asap::jinja
