// Kernels: ops that treat each element by itself.
#pragma once

#include "autograd/kernels/kernel.h"
#include "autograd/loops/pointwise.h"

namespace ink {

// clang-format off

// ---- ops/unary.cpp, binary.cpp
// Inputs have y's shape (expanded where they broadcast), and y may be one of them.
KERNEL_STRIDED(unary, Array& y, const Array& x, UnaryOp op)
// v: x or y, as the op's df says.
KERNEL_STRIDED(unary_backward, Array& dx, const Array& dy, const Array& v, UnaryOp op)
// add takes f32 and bf16 side by side, y f32.
KERNEL_STRIDED(binary, Array& y, const Array& a, const Array& b, BinaryOp op)
KERNEL_STRIDED(binary_number, Array& y, const Array& x, double number, BinaryOp op)

// ---- ops/where.cpp: likewise
KERNEL_STRIDED(where, Array& y, const Array& condition, const Array& a, const Array& b)
KERNEL_STRIDED(masked_fill, Array& y, const Array& x, const Array& mask, double value)

// ---- ops/compare.cpp: y is bool
KERNEL_STRIDED(compare, Array& y, const Array& a, const Array& b, CompareOp op)
KERNEL_STRIDED(compare_number, Array& y, const Array& x, double number, CompareOp op)

// clang-format on

}  // namespace ink
