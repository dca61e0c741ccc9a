// Upper and lower case and the classes of characters, as Python's str has them.
//
// Where Python maps one character to several, or looks at its neighbours, the character is refused
// by its code (all but the sharp s): rare, and better an error than another text.
#pragma once

#include <string>
#include <string_view>

#include "asap/base/result.h"

namespace asap::jinja {

Result<std::string> upper(std::string_view text);
Result<std::string> lower(std::string_view text);
Result<std::string> capitalize(std::string_view text);
Result<std::string> swapcase(std::string_view text);
// str.title(): a word begins after every character that has no case.
Result<std::string> title_words(std::string_view text);
// The `title` filter: a word begins after white space, a hyphen or an opening bracket.
Result<std::string> title_filter(std::string_view text);

// "isalpha", "isdigit" and so on by name, false for an empty text. Unsupported: not one of them.
Result<bool> has_class(std::string_view text, std::string_view name);

// Python's str.isprintable() of one character.
bool is_printable(char32_t code);

}  // namespace asap::jinja
