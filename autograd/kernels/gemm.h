// Kernels: matrix products.
#pragma once

#include "autograd/kernels/kernel.h"

namespace ink {

// clang-format off

// ---- gemm/gemm.cpp (gemm/gemm.h): a (..., m, k) and b (..., k, n), batches of equal shape
// c = a b, or c += a b.
KERNEL_STRIDED(gemm, Array& c, const Array& a, const Array& b, bool accumulate)
// c = a b + bias (n) in every row; bias may be undefined.
KERNEL_STRIDED(gemm_bias, Array& c, const Array& a, const Array& b, const Array& bias)

// ---- on a GPU only (ops/mlp.cpp); gelu in its tanh form; y, h, dh (m, n) share layout and dtype
// h = a b + bias, y = gelu h.
KERNEL_CUDA(gemm_gelu, Array& y, Array& h, const Array& a, const Array& b, const Array& bias)
// dh = (dy w) gelu'(h).
KERNEL_CUDA(gemm_gelu_backward, Array& dh, const Array& dy, const Array& w, const Array& h)
// ops/linear.cpp: c = a b, or c += a b, and sums (m) = the sums of a's rows; of c's dtype
KERNEL_CUDA(gemm_row_sums, Array& c, Array& sums, const Array& a, const Array& b, bool accumulate)

// clang-format on

}  // namespace ink
