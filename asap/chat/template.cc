#include "asap/chat/template.h"

#include "asap/base/check.h"
#include "asap/chat/interpreter.h"
#include "asap/chat/parser.h"

namespace asap::jinja {

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return fail(Code::invalid, "the template has {} bytes; at most {} are read", source.size(),
                kMaxTemplateBytes);
  }
  ASAP_ASSIGN(Body body, parse_template(source));
  return Template(std::move(body));
}

Result<std::string> Template::render(const Value& variables, int64_t now,
                                     const RenderLimits& limits) const {
  CHECK(variables.is(Kind::dict));
  return Interpreter(variables, now, limits).render(*body_);
}

}  // namespace asap::jinja
