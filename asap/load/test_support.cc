#include "asap/load/test_support.h"

#include <vector>

namespace asap::test {

std::string malformed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&') {
      const size_t end = xml.find(';', at);
      if (end == std::string::npos || end - at > 8) return "a bare & at " + std::to_string(at);
    }
    if (xml[at] != '<') continue;
    size_t end = at + 1;
    for (char quote = 0; end < xml.size() && (quote != 0 || xml[end] != '>'); ++end) {
      if (quote == 0 && (xml[end] == '"' || xml[end] == '\'')) {
        quote = xml[end];
      } else if (xml[end] == quote) {
        quote = 0;
      }
      if (xml[end] == '<') return "a bare < at " + std::to_string(end);
    }
    if (end == xml.size()) return "a tag without end at " + std::to_string(at);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with("?") || tag.starts_with("!") || tag.ends_with("/")) continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n\t"));
    if (!name.starts_with("/")) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return "</" + name.substr(1) + "> closes nothing";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is open";
}

}  // namespace asap::test
