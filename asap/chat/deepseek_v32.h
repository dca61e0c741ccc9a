// DeepSeek-V3.2's way to write a conversation. Its checkpoints ship no template; the scheme is
// published as a program, of which this is an implementation of our own.
//
// BOS, system text with the tools, then <｜User｜>question<｜Assistant｜> followed at once by
// <think> (thinking mode, last question) or </think>, answers up to EOS, calls in a markup of their
// own (DSML). Reasoning is kept only behind the last question.
#pragma once

#include <string>

#include "asap/base/result.h"
#include "asap/chat/value.h"

namespace asap {

// `variables` as of a template: messages, tools, and for the mode `thinking` or `enable_thinking`
// (default: chat). A question always opens the answer, whatever add_generation_prompt says.
Result<std::string> render_deepseek_v32(const jinja::Value& variables);

}  // namespace asap
