// Reading C++ text without a compiler: just enough for the rules of manners_rules.h.
//
// Everything works on a copy of the text in which comments and literals are blanked out, character
// by character, so that positions and line numbers stay those of the file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace asap::manners {

// Same length and line breaks as `text`; comments and the insides of string and character literals
// become spaces (the quotes stay).
std::string blank_comments_and_literals(std::string_view text);

// The lines of `text`, without line breaks.
std::vector<std::string_view> split_lines(std::string_view text);

// 1 for the first character.
int line_of(std::string_view text, size_t at);

// Characters of a UTF-8 line, as an editor counts columns.
int columns(std::string_view line);

// Position of `word` as a whole identifier at or after `from`; npos if there is none.
size_t find_word(std::string_view text, std::string_view word, size_t from = 0);

// A function definition outside any other function; also TEST(a, b) bodies and lambdas that
// initialise a namespace-scope variable. Its lines run from the first of its signature to the
// closing brace.
struct Function {
  std::string name;  // "Scheduler::launch"; "TEST(" bodies: "TEST"
  int line = 0;
  int lines = 0;
};
struct FunctionScan {
  std::vector<Function> functions;
  bool balanced = true;  // every brace found its partner
};
// `code` is blanked text.
FunctionScan find_functions(std::string_view code);

// #include "path" or #include <path>.
struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};
// `text` is the file's own text, not blanked.
std::vector<Include> find_includes(std::string_view text);

}  // namespace asap::manners
