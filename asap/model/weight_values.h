// Whether weights are numbers: damaged downloads and failed conversions leave tensors of NaN or
// infinity, which would only show as nonsense in the answers.
#pragma once

#include "asap/base/result.h"
#include "asap/model/safetensors.h"
#include "asap/model/weights.h"

namespace asap {

// Looks at every value of vectors (norms, biases), and at the first and last of everything else: a
// bounded part of any file. A NaN in the middle of a matrix stays unseen. Errors: invalid, naming
// file, tensor and value.
Status check_values(const Checkpoint& checkpoint, const ModelWeights& weights);

}  // namespace asap
