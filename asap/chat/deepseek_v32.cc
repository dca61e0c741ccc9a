#include "asap/chat/deepseek_v32.h"

#include <algorithm>

#include "asap/chat/budget.h"
#include "asap/chat/json.h"
#include "asap/chat/text.h"

namespace asap {

namespace {

using jinja::Budget;
using jinja::Dict;
using jinja::Kind;
using jinja::Value;

constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThought = "</think>";
constexpr std::string_view kMark = "｜DSML｜";

// The words that the model was trained on; @ stands for kMark. The schemas follow, then kToolsEnd.
constexpr std::string_view kToolsBegin =
    "## Tools\n\n"
    "You have access to a set of tools you can use to answer the user's question.\n"
    "You can invoke functions by writing a \"<@function_calls>\" block like the following as part "
    "of your reply to the user:\n"
    "<@function_calls>\n"
    "<@invoke name=\"$FUNCTION_NAME\">\n"
    "<@parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</@parameter>\n"
    "...\n"
    "</@invoke>\n"
    "<@invoke name=\"$FUNCTION_NAME2\">\n"
    "...\n"
    "</@invoke>\n"
    "</@function_calls>\n\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while "
    "lists and objects should use JSON format. The \"string\" attribute should be set to \"true\" "
    "for string type parameters and \"false\" for other types (numbers, booleans, arrays, "
    "objects).\n\n"
    "If the thinking_mode is enabled, then after function results you should strongly consider "
    "outputting a thinking block. Here is an example:\n\n"
    "<@function_calls>\n"
    "...\n"
    "</@function_calls>\n\n"
    "<function_results>\n"
    "...\n"
    "</function_results>\n\n"
    "<think>...thinking about results</think>\n\n"
    "Here are the functions available in JSONSchema format:\n"
    "<functions>\n";
constexpr std::string_view kToolsEnd = "\n</functions>\n";
constexpr std::string_view kFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

const Value& field(const Value& object, std::string_view name) {
  static const Value kNothing;
  if (!object.is(Kind::dict)) return kNothing;
  const Value* found = object.dict().find(name);
  return found ? *found : kNothing;
}

std::string_view text_field(const Value& object, std::string_view name) {
  const Value& value = field(object, name);
  return value.is_string() ? std::string_view(value.as_string()) : std::string_view();
}

class Writer {
 public:
  explicit Writer(const Value& variables) : variables_(variables), budget_(jinja::RenderLimits{}) {
    thinking_ = field(variables, "thinking").truth() || field(variables, "enable_thinking").truth();
  }

  Result<std::string> run() {
    const Value& messages = field(variables_, "messages");
    if (!messages.is(Kind::sequence)) return fail(Code::invalid, "messages is no list");
    messages_ = messages.sequence().items;
    if (field(variables_, "tools").truth()) attach_tools();
    last_user_ = -1;
    for (size_t i = 0; i < messages_.size(); ++i) {
      const std::string_view role = text_field(messages_[i], "role");
      if (role == "user" || role == "developer") last_user_ = static_cast<int64_t>(i);
    }
    out_ = kBegin;
    for (size_t i = 0; i < messages_.size(); ++i) {
      ASAP_TRY(message(i));
      ASAP_TRY(budget_.spend(1));
    }
    return std::move(out_);
  }

 private:
  // The tools of the request belong to the system message, which comes first.
  void attach_tools() {
    const bool has_system = !messages_.empty() && text_field(messages_[0], "role") == "system";
    jinja::DictBuilder system;
    if (has_system) {
      for (const auto& [key, value] : messages_[0].dict().entries) system.set(key, value);
    } else {
      system.set("role", Value::text(std::string("system")));
      messages_.insert(messages_.begin(), Value());
    }
    system.set("tools", field(variables_, "tools"));
    messages_[0] = system.finish();
  }

  Status message(size_t i) {
    const Value& message = messages_[i];
    const std::string_view role = text_field(message, "role");
    const std::string_view content = text_field(message, "content");
    if (role == "system") {
      out_ += content;
      return extras(message);
    }
    if (role == "user" || role == "developer") return question(message, i);
    if (role == "assistant") return answer(message, i);
    if (role == "tool") return tool_result(content, i);
    return fail(
        Code::invalid,
        "messages[{}]: the role \"{}\" is unknown to DeepSeek-V3.2; write system, developer, "
        "user, assistant or tool",
        i, role);
  }

  Status question(const Value& message, size_t i) {
    const std::string_view content = text_field(message, "content");
    out_ += kUser;
    if (text_field(message, "role") == "developer") {
      if (content.empty()) {
        return fail(Code::invalid, "messages[{}]: a developer message needs content", i);
      }
      ASAP_TRY(extras(message));
      out_ += "\n\n# The user's message is: ";
    }
    out_ += content;
    out_ += kAssistant;
    out_ += thinking_ && static_cast<int64_t>(i) == last_user_ ? kThink : kThought;
    return {};
  }

  // Tools and the format of the reply, each after a blank line.
  Status extras(const Value& message) {
    const Value& tools = field(message, "tools");
    if (tools.truth() && !tools.is(Kind::sequence)) {
      return fail(Code::invalid, "the tools of a message are no list");
    }
    if (tools.truth()) {
      out_ += "\n\n";
      out_ += jinja::replace(kToolsBegin, "@", kMark, jinja::kAll);
      bool first = true;
      for (const Value& tool : tools.sequence().items) {
        if (!std::exchange(first, false)) out_ += '\n';
        ASAP_TRY(jinja::append_json(field(tool, "function"), {}, out_, budget_));
      }
      out_ += kToolsEnd;
    }
    if (const Value& format = field(message, "response_format"); format.truth()) {
      out_ += "\n\n";
      out_ += kFormat;
      ASAP_TRY(jinja::append_json(format, {}, out_, budget_));
    }
    return {};
  }

  Status answer(const Value& message, size_t i) {
    const Value& calls = field(message, "tool_calls");
    if (thinking_ && static_cast<int64_t>(i) > last_user_) {
      std::string_view reasoning = text_field(message, "reasoning");
      if (reasoning.empty()) reasoning = text_field(message, "reasoning_content");
      if (reasoning.empty() && !calls.truth()) {
        return fail(Code::invalid,
                    "messages[{}]: in thinking mode an answer after the last question needs its "
                    "reasoning_content",
                    i);
      }
      out_ += reasoning;
      out_ += kThought;
    }
    out_ += text_field(message, "content");
    if (calls.truth()) ASAP_TRY(tool_calls(calls, i));
    out_ += kEnd;
    return {};
  }

  Status tool_calls(const Value& calls, size_t i) {
    if (!calls.is(Kind::sequence)) {
      return fail(Code::invalid, "messages[{}]: tool_calls is no list", i);
    }
    out_ += fmt::format("\n\n<{}function_calls>\n", kMark);
    for (const Value& call : calls.sequence().items) {
      const Value& function = field(call, "function");
      out_ += fmt::format("<{}invoke name=\"{}\">\n", kMark, text_field(function, "name"));
      const Value& arguments = field(function, "arguments");
      if (arguments.truth() && !arguments.is(Kind::dict)) {
        return fail(Code::invalid, "messages[{}]: the arguments of a tool call are no object", i);
      }
      bool first = true;
      if (arguments.is(Kind::dict)) {
        for (const auto& [name, value] : arguments.dict().entries) {
          if (!std::exchange(first, false)) out_ += '\n';
          ASAP_TRY(parameter(name.as_string(), value));
        }
      }
      out_ += fmt::format("\n</{}invoke>\n", kMark);
    }
    out_ += fmt::format("</{}function_calls>", kMark);
    return {};
  }

  Status parameter(std::string_view name, const Value& value) {
    out_ += fmt::format("<{}parameter name=\"{}\" string=\"{}\">", kMark, name, value.is_string());
    if (value.is_string()) {
      out_ += value.as_string();
    } else {
      ASAP_TRY(jinja::append_json(value, {}, out_, budget_));
    }
    out_ += fmt::format("</{}parameter>", kMark);
    return {};
  }

  Status tool_result(std::string_view content, size_t i) {
    size_t first = i;  // of the results that answer one assistant message
    while (first > 0 && text_field(messages_[first - 1], "role") == "tool") --first;
    const Value& asking = first > 0 ? messages_[first - 1] : variables_;
    const Value& calls = field(asking, "tool_calls");
    const size_t order = i - first + 1;
    const size_t count = calls.is(Kind::sequence) ? calls.sequence().items.size() : 0;
    if (text_field(asking, "role") != "assistant" || order > count) {
      return fail(Code::invalid,
                  "messages[{}]: a tool's result needs a tool call of the assistant before it", i);
    }
    if (order == 1) out_ += "\n\n<function_results>";
    out_ += "\n<result>";
    out_ += content;
    out_ += "</result>";
    if (order < count) return {};
    out_ += "\n</function_results>\n\n";
    out_ += thinking_ && static_cast<int64_t>(i) >= last_user_ ? kThink : kThought;
    return {};
  }

  const Value& variables_;
  Budget budget_;
  bool thinking_ = false;
  std::vector<Value> messages_;
  int64_t last_user_ = -1;
  std::string out_;
};

}  // namespace

Result<std::string> render_deepseek_v32(const jinja::Value& variables) {
  return Writer(variables).run();
}

}  // namespace asap
