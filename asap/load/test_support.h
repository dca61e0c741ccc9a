// What the tests of charts and reports share.
#pragma once

#include <string>

namespace asap::test {

// Where a text stops being well-formed XML; empty: it is. Knows what our SVG and HTML are made of:
// no CDATA, no doctype with brackets.
std::string malformed(const std::string& xml);

}  // namespace asap::test
