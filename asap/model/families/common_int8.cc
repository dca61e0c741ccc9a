// quantization_config of compressed-tensors: int8 weights with a scale per output channel and
// activations quantised per token as they come (model/int8.h). Everything else is named and
// refused.
#include "asap/model/families/common.h"

namespace asap {

namespace {

struct Scheme {
  const char* key;
  const char* strategy;
  bool dynamic;
};
constexpr Scheme kSchemes[] = {{"weights", "channel", false}, {"input_activations", "token", true}};

void check_scheme(JsonReader& group, const Scheme& scheme) {
  if (!group.has(scheme.key) || !group.raw(scheme.key).is_object()) {
    group.problem(scheme.key,
                  "is missing; supported are int8 weights together with int8 activations",
                  Code::unsupported);
    return;
  }
  JsonReader args(group.raw(scheme.key), group.file() + ": " + scheme.key);
  const auto require = [&](const char* key, const nlohmann::json& got, const nlohmann::json& want) {
    if (got == want) return;
    args.problem(key, fmt::format("is {}; supported is {}", shown(got), shown(want)),
                 Code::unsupported);
  };
  require("num_bits", args.integer_or("num_bits", 8, 1, 64), 8);
  require("type", args.string_or("type", "int"), "int");
  require("symmetric", args.boolean_or("symmetric", true), true);
  require("strategy", args.string_or("strategy", "tensor"), scheme.strategy);
  require("dynamic", args.boolean_or("dynamic", false), scheme.dynamic);
  group.adopt(args.status());
}

}  // namespace

void check_int_quantized(JsonReader& quantization) {
  const std::string format = quantization.string_or("format", "");
  if (format != "int-quantized") {
    quantization.problem("format",
                         fmt::format("is {}; supported is \"int-quantized\"", shown(format)),
                         Code::unsupported);
    return;
  }
  const char* key = "config_groups";
  if (!quantization.has(key) || !quantization.raw(key).is_object() ||
      quantization.raw(key).empty()) {
    quantization.problem(key, "is missing; it must say how weights and activations are quantised");
    return;
  }
  for (const auto& [name, value] : quantization.raw(key).items()) {
    const std::string where = fmt::format("{}: {}", quantization.file(), shown(name));
    if (!value.is_object()) {
      quantization.problem(key, fmt::format("holds {}; a group is an object", shown(value)));
      return;
    }
    JsonReader group(value, where);
    for (const Scheme& scheme : kSchemes) check_scheme(group, scheme);
    quantization.adopt(group.status());
  }
}

}  // namespace asap
