// The manners of this repository as data and pure functions: files go in, violations come out. What
// a rule forbids, and who is exempt from it, stands in the tables at the top of manners_rules.cc.
#pragma once

#include <string>
#include <vector>

namespace asap::manners {

struct File {
  std::string path;  // from the root of the repository: "asap/base/check.h"
  std::string text;
};

struct Violation {
  std::string path;
  int line = 1;
  std::string message;  // what was found, what is allowed, and the remedy
};
using Violations = std::vector<Violation>;

// Each looks only at the files it is about.
Violations check_include_direction(const std::vector<File>& files);
Violations check_include_spelling(const std::vector<File>& files);
Violations check_policy_headers(const std::vector<File>& files);
Violations check_concrete_names(const std::vector<File>& files);
Violations check_banned_code(const std::vector<File>& files);
Violations check_line_length(const std::vector<File>& files);
Violations check_function_length(const std::vector<File>& files);
Violations check_file_length(const std::vector<File>& files);
Violations check_headers(const std::vector<File>& files);
Violations check_orphans(const std::vector<File>& files);
Violations check_markers(const std::vector<File>& files);
Violations check_machine_paths(const std::vector<File>& files);
Violations check_final_newline(const std::vector<File>& files);

// The text files below `root` that somebody writes by hand: no build folders, no models, no
// recorded data.
std::vector<File> read_tree(const std::string& root);

}  // namespace asap::manners
