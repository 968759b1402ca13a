// Kernels: elementwise ops.
#pragma once

#include "autograd/kernels/kernel.h"
#include "autograd/loops/pointwise.h"

namespace ink {

// clang-format off

// ---- ops/unary.cpp, binary.cpp
// Inputs have y's shape (expanded where they broadcast), and y may be one of them.
KERNEL_STRIDED(unary, Array& y, const Array& x, UnaryOp op)
// v: x or y, whichever the df of the op's formula takes.
KERNEL_STRIDED(unary_backward, Array& dx, const Array& dy, const Array& v, UnaryOp op)
KERNEL_STRIDED(clamp, Array& y, const Array& x, double low, double high)
// All dtypes are y's, except that add also takes f32 and bf16 together and gives f32.
KERNEL_STRIDED(binary, Array& y, const Array& a, const Array& b, BinaryOp op)
KERNEL_STRIDED(binary_number, Array& y, const Array& x, double number, BinaryOp op)

// ---- ops/swiglu.cpp: dgate or dup may be undefined
KERNEL(swiglu_backward, Array& dgate, Array& dup, const Array& dy, const Array& gate,
       const Array& up)

// ---- ops/where.cpp: inputs and y as above
KERNEL_STRIDED(where, Array& y, const Array& condition, const Array& a, const Array& b)
KERNEL_STRIDED(masked_fill, Array& y, const Array& x, const Array& mask, double value)

// ---- ops/compare.cpp: y is bool
KERNEL_STRIDED(compare, Array& y, const Array& a, const Array& b, CompareOp op)
KERNEL_STRIDED(compare_number, Array& y, const Array& x, double number, CompareOp op)

// clang-format on

}  // namespace ink
