// The manners of the repository, as a test: where includes may point, what code may not use, how
// long lines, functions and files may be, and that no file is left out of the build. The rules
// themselves are in manners_rules.cc; here they run over this checkout, and each is shown to fail
// on a small example.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/manners_rules.h"
#include "tests/manners_scan.h"

namespace asap::manners {
namespace {

const std::vector<File>& tree() {
  static const std::vector<File> files = read_tree(ASAP_SOURCE_DIR);
  return files;
}

// One failure with a line per violation, as a compiler would print them.
void expect_none(const Violations& violations) {
  std::string report;
  for (const Violation& v : violations) {
    report += "\n" + v.path + ":" + std::to_string(v.line) + ": " + v.message;
  }
  EXPECT_TRUE(violations.empty()) << report;
}

// --- This checkout ---

TEST(Manners, TreeIsRead) {
  const auto has = [](const std::string& path) {
    return std::any_of(tree().begin(), tree().end(), [&](const File& f) { return f.path == path; });
  };
  EXPECT_TRUE(has("asap/base/check.h"));
  EXPECT_TRUE(has("tests/manners_test.cc"));
  EXPECT_TRUE(has("CMakeLists.txt"));
  EXPECT_FALSE(has("models/asap-tiny-moe/tokenizer.json"));
}

TEST(Manners, IncludesPointDown) {
  expect_none(check_include_direction(tree()));
}
TEST(Manners, IncludesAreSpelledFromTheRoot) {
  expect_none(check_include_spelling(tree()));
}
TEST(Manners, PoliciesAreValues) {
  expect_none(check_policy_headers(tree()));
}
TEST(Manners, OnlyMainChoosesLinksAndOps) {
  expect_none(check_concrete_names(tree()));
}
TEST(Manners, NothingBannedIsUsed) {
  expect_none(check_banned_code(tree()));
}
TEST(Manners, LinesAreShort) {
  expect_none(check_line_length(tree()));
}
TEST(Manners, FunctionsFitAScreen) {
  expect_none(check_function_length(tree()));
}
TEST(Manners, FilesHaveOneSubject) {
  expect_none(check_file_length(tree()));
}
TEST(Manners, HeadersSayWhatTheyAre) {
  expect_none(check_headers(tree()));
}
TEST(Manners, EverySourceIsBuilt) {
  expect_none(check_orphans(tree()));
}
TEST(Manners, NothingIsMarkedUnfinished) {
  expect_none(check_markers(tree()));
}
TEST(Manners, NoPathsOfOneMachine) {
  expect_none(check_machine_paths(tree()));
}
TEST(Manners, TextEndsWithANewline) {
  expect_none(check_final_newline(tree()));
}

// --- The scanner ---

TEST(MannersScan, BlanksCommentsAndLiterals) {
  EXPECT_EQ(blank_comments_and_literals("a; // b\nc"), "a;     \nc");
  EXPECT_EQ(blank_comments_and_literals("a /* b\nc */ d"), "a     \n     d");
  EXPECT_EQ(blank_comments_and_literals("// a\\\nb\nc"), "     \n \nc");
  EXPECT_EQ(blank_comments_and_literals(R"(f("a\"{b", '}', '\'');)"), "f(\"     \", ' ', '  ');");
  EXPECT_EQ(blank_comments_and_literals("R\"x(a\" )\" {)x\" b"), "R\"           \" b");
  EXPECT_EQ(blank_comments_and_literals("1'000 + 'x'"), "1'000 + ' '");
  EXPECT_EQ(blank_comments_and_literals("u8'x' L'}'"), "u8' ' L' '");
  EXPECT_EQ(blank_comments_and_literals("\"http://x\" y"), "\"        \" y");
}

TEST(MannersScan, CountsCharactersNotBytes) {
  EXPECT_EQ(columns("abc"), 3);
  EXPECT_EQ(columns("D·T µs"), 6);
}

TEST(MannersScan, FindsWholeWords) {
  EXPECT_EQ(find_word("runtime time", "time"), 8u);
  EXPECT_EQ(find_word("timer", "time"), std::string_view::npos);
}

std::vector<std::string> names(std::string_view code) {
  std::vector<std::string> out;
  for (const Function& f : find_functions(blank_comments_and_literals(code)).functions) {
    out.push_back(f.name + ":" + std::to_string(f.line) + "+" + std::to_string(f.lines));
  }
  return out;
}
using Expected = std::vector<std::string>;

TEST(MannersScan, FindsFunctionsAndTheirLines) {
  EXPECT_EQ(names("int f() { return 1; }\nint A::g(int x)\n    const {\n}\n"),
            (Expected{"f:1+1", "A::g:2+3"}));
  EXPECT_EQ(names("TEST(A, B) {\n  if (x) {\n  }\n}\n"), (Expected{"TEST:1+4"}));
  EXPECT_EQ(names("template <typename T, typename = void>\nT f(T x) {\n}\n"), (Expected{"f:1+3"}));
  EXPECT_EQ(names("const auto f = [](int x) {\n};\n"), (Expected{"f:1+2"}));
}

TEST(MannersScan, SeesThroughNamespacesAndClasses) {
  EXPECT_EQ(names("namespace a {\nnamespace {\nint f() {\n}\n}\n}\n"), (Expected{"f:3+2"}));
  EXPECT_EQ(names("struct alignas(64) S {\n public:\n  int f() { return 1; }\n};\n"),
            (Expected{"f:3+1"}));
  EXPECT_EQ(names("extern \"C\" {\nint f() {\n}\n}\n"), (Expected{"f:2+2"}));
  EXPECT_EQ(names("extern \"C\" int f() {\n}\n"), (Expected{"f:1+2"}));
}

TEST(MannersScan, KnowsInitialisersFromBodies) {
  EXPECT_EQ(names("A::A(int n)\n    : a_{n}, b_(n), c_{std::vector<int>{1}} {\n}\n"),
            (Expected{"A::A:1+3"}));
  EXPECT_EQ(names("void f(Options o = {}, int n = 1) {\n}\n"), (Expected{"f:1+2"}));
  EXPECT_EQ(names("int table[] = {1, 2};\nstd::atomic<int> n{0};\nenum class E { a, b };\n"),
            Expected{});
}

TEST(MannersScan, IgnoresBracesOfDirectivesAndLiterals) {
  EXPECT_EQ(names("#define BEGIN \\\n  if (x) {\nint f() {\n  g(\"}\", '}');\n  // }\n}\n"),
            (Expected{"f:3+4"}));
}

TEST(MannersScan, SaysWhenBracesDoNotMatch) {
  EXPECT_TRUE(find_functions("int f() {}").balanced);
  EXPECT_FALSE(find_functions("int f() {").balanced);
  EXPECT_FALSE(find_functions("namespace a { int f() {}").balanced);
  EXPECT_FALSE(find_functions("int f() {} }").balanced);
}

TEST(MannersScan, FindsIncludes) {
  const auto includes =
      find_includes("#include \"asap/a.h\"\n// #include \"no.h\"\n#  include <vector>\n");
  ASSERT_EQ(includes.size(), 2u);
  EXPECT_EQ(includes[0].path, "asap/a.h");
  EXPECT_TRUE(includes[0].quoted);
  EXPECT_EQ(includes[1].path, "vector");
  EXPECT_EQ(includes[1].line, 3);
}

// --- The rules ---

// "line: message" of the only violation; "" if there is none.
std::string only(const Violations& violations) {
  if (violations.empty()) return "";
  EXPECT_EQ(violations.size(), 1u);
  return std::to_string(violations[0].line) + ": " + violations[0].message;
}
bool says(const Violations& violations, const std::string& part) {
  return only(violations).find(part) != std::string::npos;
}
std::string include(const std::string& path) {
  return "#include \"" + path + "\"\n";
}

TEST(MannersRules, IncludeDirection) {
  const auto check = [](const std::string& path, const std::string& target) {
    return check_include_direction({{path, "\n" + include(target)}});
  };
  EXPECT_TRUE(check("asap/compute/a.cc", "asap/model/b.h").empty());
  EXPECT_TRUE(check("asap/compute/a.cc", "asap/compute/b.h").empty());
  EXPECT_TRUE(check("asap/main.cc", "asap/cli/cli.h").empty());
  EXPECT_TRUE(says(check("asap/model/a.cc", "asap/compute/b.h"), "2: includes asap/compute/b.h"));
  EXPECT_TRUE(says(check("asap/policy/a.cc", "asap/wire/b.h"), "only: base, policy"));
  EXPECT_TRUE(says(check("asap/novel/a.cc", "asap/base/b.h"), "no place"));
}

TEST(MannersRules, IncludeSpelling) {
  EXPECT_TRUE(check_include_spelling({{"asap/base/a.cc", include("asap/base/a.h")}}).empty());
  EXPECT_TRUE(check_include_spelling({{"tests/a.cc", include("tests/a.h")}}).empty());
  EXPECT_TRUE(says(check_include_spelling({{"asap/base/a.cc", include("a.h")}}), "\"a.h\""));
  EXPECT_TRUE(says(check_include_spelling({{"asap/a.cc", include("tests/a.h")}}), "tests/a.h"));
}

TEST(MannersRules, PolicyHeaders) {
  EXPECT_TRUE(check_policy_headers({{"asap/policy/a.h", "#include <vector>\n"}}).empty());
  EXPECT_TRUE(check_policy_headers({{"asap/runtime/a.h", "#include <mutex>\n"}}).empty());
  EXPECT_TRUE(says(check_policy_headers({{"asap/policy/a.h", "#include <mutex>\n"}}), "<mutex>"));
}

TEST(MannersRules, ConcreteNames) {
  const std::string link = include("asap/transport/link_shm.h");
  EXPECT_TRUE(check_concrete_names({{"asap/main.cc", link}}).empty());
  EXPECT_TRUE(check_concrete_names({{"asap/transport/link_shm.cc", link}}).empty());
  EXPECT_TRUE(check_concrete_names({{"asap/runtime/agent_test.cc", link}}).empty());
  EXPECT_TRUE(says(check_concrete_names({{"asap/runtime/agent.cc", link}}), "link_shm.h"));
  const std::string ops = "auto ops = make_ops_cpu(team);\n";
  EXPECT_TRUE(check_concrete_names({{"asap/compute/ops_cpu.cc", ops}}).empty());
  EXPECT_TRUE(says(check_concrete_names({{"asap/serve/front.cc", ops}}), "make_ops_cpu"));
}

TEST(MannersRules, BannedCode) {
  const auto check = [](const std::string& path, const std::string& code) {
    return check_banned_code({{path, code}});
  };
  const std::string clock = "auto t = std::chrono::steady_clock::now();\n";
  EXPECT_TRUE(says(check("asap/model/a.cc", clock), "1: `steady_clock`"));
  EXPECT_TRUE(check("asap/runtime/a.cc", clock).empty());
  EXPECT_TRUE(check("asap/model/a_bench.cc", clock).empty());
  EXPECT_TRUE(check("asap/model/a.cc", "// steady_clock\nint x;\n").empty());
  EXPECT_TRUE(says(check("asap/base/a.cc", "\nauto t = time(nullptr);\n"), "2: `time`"));
  EXPECT_TRUE(check("asap/base/a.cc", "f(event.time());\nint time = 0;\n").empty());
  EXPECT_TRUE(says(check("asap/base/a.cc", "int x = rand();\n"), "`rand`"));
  EXPECT_TRUE(says(check("asap/base/a.h", "inline void f() { printf(\"\"); }\n"), "`printf`"));
  EXPECT_TRUE(check("asap/base/a.cc", "void f() { printf(\"\"); }\n").empty());
  EXPECT_TRUE(says(check("asap/base/a.cc", "using namespace std;\n"), "write std::"));
  EXPECT_TRUE(check("asap/base/a.cc", "using namespace std::literals;\n").empty());
  EXPECT_TRUE(says(check("asap/base/a.cc", "volatile int x;\n"), "`volatile`"));
  EXPECT_TRUE(check("asap/base/a.cc", "asm volatile(\"pause\");\n").empty());
}

TEST(MannersRules, Lengths) {
  const auto lines = [](int n, const std::string& line) {
    std::string text;
    for (int i = 0; i < n; ++i) text += line + "\n";
    return text;
  };
  EXPECT_TRUE(check_line_length({{"a.cc", std::string(100, 'x')}}).empty());
  EXPECT_TRUE(says(check_line_length({{"a.cc", "\n" + std::string(101, 'x')}}), "2: 101 columns"));

  EXPECT_TRUE(check_function_length({{"a.cc", "int f() {\n" + lines(68, "x;") + "}\n"}}).empty());
  EXPECT_TRUE(says(check_function_length({{"a.cc", "\nint f() {\n" + lines(69, "x;") + "}\n"}}),
                   "2: f has 71 lines"));
  EXPECT_TRUE(says(check_function_length({{"a.cc", "namespace a {\n"}}), "braces do not match"));

  EXPECT_TRUE(check_file_length({{"a.cc", lines(800, "x")}}).empty());
  EXPECT_TRUE(says(check_file_length({{"a.cc", lines(801, "x")}}), "801 lines"));
}

TEST(MannersRules, Headers) {
  EXPECT_TRUE(check_headers({{"a.h", "// What.\n#pragma once\n"}}).empty());
  EXPECT_TRUE(says(check_headers({{"a.h", "#pragma once\n"}}), "opens with a comment"));
  EXPECT_TRUE(says(check_headers({{"a.h", "// #pragma once\n"}}), "no #pragma once"));
}

TEST(MannersRules, Orphans) {
  const File list{"asap/base/CMakeLists.txt",
                  "asap_module(base SOURCES check.cc kernels/k.cc)  # gone.cc\n"
                  "foreach(test a_test)\n  asap_test(${test} SOURCES ${test}.cc)\nendforeach()\n"
                  "add_executable(asap ${CMAKE_SOURCE_DIR}/asap/main.cc)\n"};
  const auto check = [&](const std::string& path) { return check_orphans({list, {path, ""}}); };
  EXPECT_TRUE(check("asap/base/check.cc").empty());
  EXPECT_TRUE(check("asap/base/kernels/k.cc").empty());
  EXPECT_TRUE(check("asap/base/a_test.cc").empty());
  EXPECT_TRUE(check("asap/main.cc").empty());
  EXPECT_TRUE(says(check("asap/base/gone.cc"), "no CMakeLists.txt names"));
  EXPECT_TRUE(says(check("asap/wire/check.cc"), "no CMakeLists.txt names"));
}

TEST(MannersRules, Text) {
  EXPECT_TRUE(says(check_markers({{"a.md", std::string("\nTO") + "DO: x\n"}}), "2: "));
  EXPECT_TRUE(check_markers({{"a.md", "todo list\n"}}).empty());
  EXPECT_TRUE(says(check_machine_paths({{"a.sh", std::string("cd /ro") + "ot/x\n"}}), "1: "));
  EXPECT_TRUE(check_final_newline({{"a.md", "x\n"}}).empty());
  EXPECT_TRUE(says(check_final_newline({{"a.md", "x\ny"}}), "2: "));
}

}  // namespace
}  // namespace asap::manners
