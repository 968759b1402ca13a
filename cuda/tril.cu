// tril, triu: the twin of autograd/ops/tril.cpp.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

// y = x where column <= row + diagonal (lower), or >=; else 0. Matrices follow each other.
template <class T>
struct Triangle {
  static constexpr int kThreads = 256, kEach = 4;
  T* y;
  const T* x;
  int64_t n, diagonal;
  Divider<uint64_t> columns, height;
  bool lower;

  __device__ void operator()() const {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = first + e * kThreads;
      if (i >= n) break;
      const uint64_t line = columns.quotient(i),
                     row = line - height.quotient(line) * height.divisor;
      const auto above = static_cast<int64_t>(i - line * columns.divisor - row);  // the diagonal
      const bool kept = lower ? above <= diagonal : above >= diagonal;
      y[i] = kept ? x[i] : T(0);
    }
  }
};

}  // namespace

void triangle(Array& y, const Array& x, int64_t diagonal, bool lower) {
  if (x.numel() == 0) return;
  for_any(x.dtype(), [&]<class T>(T) {
    using Kernel = Triangle<T>;
    launch("triangle", blocks_for(x.numel(), Kernel::kThreads, Kernel::kEach),
           Kernel{y.mutable_data<T>(), x.data<T>(), x.numel(), diagonal,
                  Divider<uint64_t>(x.size(-1)), Divider<uint64_t>(x.size(-2)), lower});
  });
}

}  // namespace ink::cuda
