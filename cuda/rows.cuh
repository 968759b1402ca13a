// What kernels of rows (the last dimension) share.
#pragma once

#include <limits>

#include "autograd/kernels.h"
#include "autograd/simd.h"
#include "cuda/launch.cuh"

namespace ink::cuda {

/// Threads of the block that takes a row.
inline constexpr int kRowThreads = 256;

/// The number of rows of x: all its dimensions but the last.
inline int64_t row_count(const Tensor& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

template <class C>
__device__ constexpr C infinity() {
  return std::numeric_limits<C>::infinity();
}

}  // namespace ink::cuda
