// UTF-8: reading characters of untrusted bytes, repairing them, and the Unicode mappings that the
// normalizers of tokenizer.json are made of.
//
// Repair replaces every maximal ill-formed part by one U+FFFD, as WHATWG, Python and Rust do, so
// that texts agree with other tokenizers byte for byte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace asap {

struct Utf8Char {
  char32_t code = 0xFFFD;  // U+FFFD if the bytes are ill-formed
  size_t length = 1;       // bytes of the character, or of the maximal ill-formed part
  bool valid = false;
  bool truncated = false;  // ill-formed only because the text ends here
};

// The character that begins at text[at]; at < text.size().
Utf8Char utf8_at(std::string_view text, size_t at);
// The last character of `text`, which is valid and not empty.
char32_t utf8_last(std::string_view text);
void append_utf8(char32_t code, std::string* out);
// Is the valid `text` a single character?
bool is_one_char(std::string_view text);
bool is_mark_char(char32_t code);  // of category Mark

bool is_utf8(std::string_view text);
std::string repair_utf8(std::string_view text);
// Bytes (0 to 3) at the end of `text` that begin a character which further bytes could complete.
size_t utf8_incomplete_tail(std::string_view text);

// `text` is valid in all that follows.
enum class NormalForm { nfc, nfd, nfkc, nfkd };
// In O(n log n) also for endless runs of combining marks.
std::string normalized(std::string_view text, NormalForm form);
// Character by character, so a final sigma is a sigma like any other (as Rust's char does it).
std::string lowercase(std::string_view text);
// Without the characters of category Mark.
std::string without_marks(std::string_view text);

}  // namespace asap
