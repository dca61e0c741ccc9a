// DummyWeights: seeded random tensors in place of a checkpoint (--load-format dummy), to measure
// and test models without their weights. There is no list of names: a tensor exists because
// bind_weights asked for it, with the shape that it asked for.
//
// A value depends on the seed, the tensor's name and its place in it, so every rank sees the same
// model. Matrices have a standard deviation of about 1/sqrt(columns), which keeps activations
// finite and routing spread; norms are 1, biases 0. Only what is read is made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "asap/model/safetensors.h"

namespace asap {

// How the tensors are stored.
struct DummyFormat {
  enum class Stored : uint8_t { plain, fp8, mxfp4 };

  uint64_t seed = 0;
  std::string dtype = "BF16";  // of what is not quantised: "F32", "BF16" or "F16"
  // fp8: matrices but embedding, head and routers, in 128x128 blocks. mxfp4: stacks of experts.
  Stored stored = Stored::plain;
  bool power_of_two_scales = false;  // of fp8 (scale_fmt ue8m0)
  std::vector<std::string> kept =
      {};  // modules_to_not_convert: parts of names that stay unquantised
};

class DummyWeights {
 public:
  explicit DummyWeights(DummyFormat format);
  ~DummyWeights();
  DummyWeights(const DummyWeights&) = delete;
  DummyWeights& operator=(const DummyWeights&) = delete;

  // The tensor of that name, made up with that shape when it is first asked for. One thread.
  const StoredTensor* find(const std::string& name, const std::vector<int64_t>& shape);
  // Whether experts come in the layout that has a tensor of this name.
  bool offers(const std::string& name) const;
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Frees all bytes made so far; what is read again is made again. Nobody may be reading.
  void release();

 private:
  class Tensor;
  struct Recipe;
  Recipe recipe_of(const std::string& name, const std::vector<int64_t>& shape) const;
  bool quantised(const std::string& name, const std::vector<int64_t>& shape) const;

  const DummyFormat format_;
  std::map<std::string, StoredTensor> tensors_;
  std::vector<std::unique_ptr<Tensor>> made_;
};

}  // namespace asap
