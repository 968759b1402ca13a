// Kernels: fills and copies.
#pragma once

#include "autograd/kernels/kernel.h"

namespace ink {

// clang-format off

// ---- ops/copy.cpp
KERNEL_STRIDED(fill, Array& y, double value)
// y = x, of one shape, in y's dtype.
KERNEL_STRIDED(copy, Array& y, const Array& x)

// clang-format on

/// x itself if it is contiguous, else a copy that is.
Array contiguous(const Array& x);

}  // namespace ink
