#include "asap/model/metaspace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "asap/model/json_reader.h"
#include "asap/model/utf8.h"

namespace asap {

Result<MetaspaceOptions> MetaspaceOptions::parse(const nlohmann::json& config,
                                                 const std::string& where) {
  static constexpr std::pair<std::string_view, Prepend> kSchemes[] = {
      {"never", Prepend::never}, {"always", Prepend::always}, {"first", Prepend::first}};
  JsonReader reader(config, fmt::format("{}: Metaspace", where));
  MetaspaceOptions out;
  out.replacement = reader.string_or("replacement", "");
  const bool prefixed = reader.boolean_or("add_prefix_space", true);
  const std::string scheme = reader.string_or("prepend_scheme", prefixed ? "always" : "never");
  out.split = reader.boolean_or("split", true);
  ASAP_TRY(reader.status());
  if (!is_one_char(out.replacement)) {
    return fail(Code::invalid, "{}: replacement \"{}\" is not one character", reader.file(),
                out.replacement);
  }
  const auto known = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                  [&](const auto& entry) { return entry.first == scheme; });
  if (known == std::end(kSchemes)) {
    return fail(Code::invalid, "{}: prepend_scheme \"{}\" is not always, first or never",
                reader.file(), scheme);
  }
  out.prepend = known->second;
  if (!prefixed && out.prepend != Prepend::never) {
    return fail(Code::invalid, "{}: add_prefix_space is false, but prepend_scheme is \"{}\"",
                reader.file(), scheme);
  }
  return out;
}

}  // namespace asap
