#include "asap/model/weight_values.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace asap {

namespace {

constexpr uint64_t kEnds = 64;            // values looked at, at either end of a matrix
constexpr uint64_t kMaxVector = 1 << 17;  // values of a vector that are all looked at

// How an element type writes what is not a number: all of `special` set. Types that are not listed
// have none, or are no weights.
struct NotFinite {
  const char* dtype;
  uint64_t bytes;
  uint32_t special;
  uint32_t fraction;  // any of these bits set: NaN, else infinity
};
constexpr NotFinite kNotFinite[] = {
    {"F32", 4, 0x7F800000, 0x007FFFFF}, {"BF16", 2, 0x7F80, 0x007F}, {"F16", 2, 0x7C00, 0x03FF},
    {"F8_E4M3", 1, 0x7F, 0x7F},         {"F8_E8M0", 1, 0xFF, 0xFF},
};

// Null, or "NaN", "infinity", "-infinity".
const char* wrong_value(const NotFinite& type, const std::byte* at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, type.bytes);  // little-endian, as the file
  if ((bits & type.special) != type.special) return nullptr;
  if ((bits & type.fraction) != 0) return "NaN";
  return (bits >> (8 * type.bytes - 1)) != 0 ? "-infinity" : "infinity";
}

using Named = std::pair<const StoredTensor*, const std::string*>;

Status check_tensor(const Checkpoint& checkpoint, const Named& named) {
  const StoredTensor& tensor = *named.first;
  const auto* type = std::find_if(std::begin(kNotFinite), std::end(kNotFinite),
                                  [&](const NotFinite& t) { return tensor.dtype == t.dtype; });
  if (type == std::end(kNotFinite)) return {};
  const uint64_t count = tensor.bytes / type->bytes;
  const bool whole = tensor.shape.size() <= 1 && count <= kMaxVector;
  for (uint64_t i = 0; i < count; ++i) {
    if (!whole && i == kEnds && count > 2 * kEnds) i = count - kEnds;
    const char* wrong = wrong_value(*type, tensor.data + i * type->bytes);
    if (wrong == nullptr) continue;
    return fail(Code::invalid,
                "{}: tensor {} [{}] holds {} at element {}; the file is damaged or was badly "
                "converted, fetch it again",
                checkpoint.files()[static_cast<size_t>(tensor.file)], *named.second,
                fmt::join(tensor.shape, ", "), wrong, i);
  }
  return {};
}

}  // namespace

Status check_values(const Checkpoint& checkpoint, const ModelWeights& weights) {
  if (checkpoint.is_dummy()) return {};  // looking would make them
  std::vector<Named> order;
  for (const std::string& name : weights.stored) {
    order.emplace_back(checkpoint.find(name), &name);
  }
  // In the order of the files, so that reading goes forward.
  std::sort(order.begin(), order.end(), [](const Named& a, const Named& b) {
    const std::byte* const at = a.first->data;
    const std::byte* const other = b.first->data;
    return std::pair(a.first->file, at) < std::pair(b.first->file, other);
  });
  checkpoint.read_ahead(false);
  Status status;
  for (size_t i = 0; status && i < order.size(); ++i) status = check_tensor(checkpoint, order[i]);
  checkpoint.read_ahead(true);
  return status;
}

}  // namespace asap
