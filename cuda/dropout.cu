// Dropout: the twin of autograd/ops/dropout.cpp.
//   y  = x mask,  mask = 0 with probability p, else 1 / (1 - p)
#include <type_traits>

#include "cuda/random.cuh"

#include "autograd/kernels/rows.h"

namespace ink::cuda {
namespace {

// A thread draws the numbers of some counters, and so takes four elements at a time. kWhole: the
// four elements of a counter are an aligned pack in memory.
template <class T, bool kWhole>
struct Dropout {
  static constexpr int kThreads = 256, kEach = 4;  // counters of a thread
  using C = compute_t<T>;
  struct Shared {
    uint64_t key;
  };
  T* y;
  const T* x;
  int64_t n;  // elements
  DropoutFactors dropout;

  __device__ void operator()(Shared& shared) const {
    if (threadIdx.x == 0) shared.key = dropout.draws.key();
    __syncthreads();
    const int64_t begin = dropout.first / 4 + static_cast<int64_t>(blockIdx.x) * kThreads * kEach;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t counter = begin + k * kThreads + threadIdx.x;
      if (4 * counter - dropout.first < n) four(4 * counter - dropout.first, shared.key);
    }
  }

  __device__ __forceinline__ void four(int64_t i, uint64_t key) const {
    const auto factors = dropout.template factors<C, 4>(key, i);
    if (kWhole && i + 4 <= n) return store(y + i, load<4>(x + i) * factors);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j >= 0 && i + j < n)
        y[i + j] = static_cast<T>(static_cast<C>(x[i + j]) * factors.at[j]);
  }
};

}  // namespace

void dropout(Array& y, const Array& x, double p, const RandomPosition& at) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const DropoutFactors factors(x, p, at);
  const int64_t first = factors.first;
  const int64_t counters = (first + n - 1) / 4 - first / 4 + 1;
  for_float("dropout", x.dtype(), [&]<class T>(T) {
    T* out = y.mutable_data<T>();
    const T* in = x.data<T>();
    for_bool(first % 4 == 0 && are_aligned({out, in}), [&](auto whole) {
      using Kernel = Dropout<T, whole()>;
      launch("dropout", blocks_for(counters, Kernel::kThreads, Kernel::kEach),
             Kernel{out, in, n, factors});
    });
  });
}

}  // namespace ink::cuda
