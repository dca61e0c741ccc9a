// Text of users and files made safe for XML, HTML and gnuplot.
#pragma once

#include <string>
#include <string_view>

namespace asap {

// On one line: control characters become blanks, bytes that are no UTF-8 become U+FFFD.
std::string printable(std::string_view text);
// printable(), with & < > " ' as entities.
std::string xml_escape(std::string_view text);

}  // namespace asap
