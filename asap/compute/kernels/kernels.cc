// All kernels for one ISA. CMake compiles this file once per ISA with ASAP_ISA (a name) and
// ASAP_VECTOR (floats per vector: 4, 8 or 16).
#include "asap/compute/kernels/gemm.h"
#include "asap/compute/kernels/gemm_int8.h"
#include "asap/compute/kernels/gemm_int8_block.h"
#include "asap/compute/kernels/rows.h"
#include "asap/compute/kernels/table.h"

#define ASAP_STRING_(x) #x
#define ASAP_STRING(x) ASAP_STRING_(x)
#define ASAP_JOIN_(a, b) a##b
#define ASAP_JOIN(a, b) ASAP_JOIN_(a, b)

namespace asap {

extern const KernelTable ASAP_JOIN(kernels_, ASAP_ISA) = {
    .isa = ASAP_STRING(ASAP_ISA),
    .width = kWidth,
    .tile_columns = kTileColumns,
    .fma_loop = fma_loop,
    .gemm = gemm,
    .gemm_bf16 = gemm,
    .int8 = kInt8Form,
    .gemm_int8 = gemm_int8,
    .quantize_int8 = quantize_int8,
    .softmax = softmax,
    .scale_rows = scale_rows,
    .scale = scale,
    .transpose = transpose,
    .pack_columns = pack_columns,
    .relu_sum = relu_sum,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rope = rope,
    .narrow = narrow,
    .widen = widen,
    .add = add,
    .add_bf16 = add_bf16,
};

}  // namespace asap
