// The int8 kernels of one ISA, where all others are those of another table. CMake compiles this
// file with ASAP_ISA and ASAP_VECTOR, as kernels.cc.
#include "asap/compute/kernels/gemm_int8.h"
#include "asap/compute/kernels/gemm_int8_block.h"
#include "asap/compute/kernels/table.h"

#define ASAP_JOIN_(a, b) a##b
#define ASAP_JOIN(a, b) ASAP_JOIN_(a, b)

namespace asap {

extern const Int8Kernels ASAP_JOIN(int8_, ASAP_ISA) = {kInt8Form, gemm_int8, quantize_int8};

}  // namespace asap
