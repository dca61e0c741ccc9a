// Template: a text in the template language (Jinja, as far as chat templates use it), ready to be
// rendered.
//
// The environment is Hugging Face's: immutable sandbox, trim_blocks, lstrip_blocks, loop controls,
// {% generation %}, its tojson, raise_exception and strftime_now. What is not implemented is an
// error with the construct's name and line, never another text than Jinja's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "asap/base/result.h"
#include "asap/chat/ast.h"
#include "asap/chat/budget.h"
#include "asap/chat/value.h"

namespace asap::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

class Template {
 public:
  static Result<Template> parse(std::string_view source);

  // `variables` are a dict; `now` is Unix time in seconds. Any number of renderings may run at
  // once.
  Result<std::string> render(const Value& variables, int64_t now,
                             const RenderLimits& limits = {}) const;

 private:
  explicit Template(Body body) : body_(std::make_shared<const Body>(std::move(body))) {}

  std::shared_ptr<const Body> body_;
};

}  // namespace asap::jinja
