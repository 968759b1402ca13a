// Kernels: reductions.
#pragma once

#include "autograd/kernels/kernel.h"

namespace ink {

/// How elements along the reduced dimensions are combined. mean divides the sum by their number.
/// For bools, max is `any` and min is `all`.
enum class ReduceOp { sum, sum_of_squares, mean, prod, max, min };

// clang-format off

// ---- ops/reduce.cpp, max_min.cpp, var.cpp: y keeps the reduced dimensions, with size 1
KERNEL_STRIDED(reduce, Array& y, const Array& x, ReduceOp op)
KERNEL_STRIDED(arg_reduce, Array& values, Array& indices, const Array& x, int64_t dim, bool largest)
// root: gives the standard deviation, not the variance.
KERNEL_STRIDED(reduce_var, Array& y, const Array& x, double correction, bool root)

// ---- ops/linear.cpp: y (n) = the sum of x's rows, or y += it; x (rows, n), any floating dtypes
KERNEL_STRIDED(sum_rows, Array& y, const Array& x, bool accumulate)

// clang-format on

namespace cpu {
/// ops/torch_sum.cpp: y (contiguous) = the sum of x along the reduced dimensions, with PyTorch's
/// bits. T: float or double.
template <class T>
void sum_as_torch(Array& y, const Array& x);
}  // namespace cpu

}  // namespace ink
