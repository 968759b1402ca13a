// Kernels: fills and copies.
#pragma once

#include "autograd/kernels/kernel.h"

namespace ink {

// clang-format off

// ---- ops/copy.cpp
KERNEL_STRIDED(fill, Array& y, double value)
// y (n): start + i step for the first `rising` elements, end - (n - 1 - i) step for the others. i64
// is computed in i64 if all rise, everything else in double.
KERNEL(ramp, Array& y, double start, double step, double end, int64_t rising)
// y = x, of one shape, in y's dtype.
KERNEL_STRIDED(copy, Array& y, const Array& x)

// clang-format on

/// New contiguous memory with the elements of x in a dtype.
Array copied(const Array& x, DType dtype);
/// x itself if it is contiguous, else a copy that is.
Array contiguous(const Array& x);

}  // namespace ink
