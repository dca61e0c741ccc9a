// Text as Python sees it: UTF-8 underneath, counted in code points, with Python's idea of white
// space and of lines. All texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace asap::jinja {

bool is_ascii(std::string_view text);
bool is_space(char32_t code);

// Code points in `text`.
size_t length(std::string_view text);
// Byte position of code point `index`; the size of `text` if it has no more.
size_t offset_of(std::string_view text, size_t index);
// Code points [from, to).
std::string_view substring(std::string_view text, size_t from, size_t to);
std::vector<std::string_view> characters(std::string_view text);

// str.strip and its halves: white space, or any of the characters in `chars`.
std::string_view strip(std::string_view text, const std::optional<std::string_view>& chars,
                       bool left, bool right);

constexpr size_t kAll = std::string_view::npos;
// str.split and rsplit; an empty `separator` means runs of white space. At most `limit` cuts.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    size_t limit);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          size_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// Occurrences that do not overlap; an empty `part` is found between all characters.
size_t count(std::string_view text, std::string_view part);
// Replaces the first `limit` occurrences.
std::string replace(std::string_view text, std::string_view old, std::string_view by, size_t limit);

}  // namespace asap::jinja
