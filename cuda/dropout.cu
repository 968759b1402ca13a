// Dropout: the twin of autograd/ops/dropout.cpp.
//   y  = x mask,  mask = 0 with probability p, else 1 / (1 - p)
// The mask equals the CPU's and does not depend on the launch: element i of the whole batch has
// number i % 4 of counter i / 4.
#include <type_traits>

#include "autograd/random/dropout_mask.h"

#include "autograd/kernels/rows.h"
#include "cuda/pack.cuh"

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
  int64_t n, first;  // elements, and the index of the first in the whole batch
  DropoutMask mask;
  C kept;
  RandomPosition at;
  const uint64_t* step;  // where to read it on the device; null: at.step

  __device__ void operator()(Shared& shared) const {
    if (threadIdx.x == 0)
      shared.key = Philox::derive(at.seed, step ? *step : at.step, at.micro_batch);
    __syncthreads();
    const int64_t begin = first / 4 + static_cast<int64_t>(blockIdx.x) * kThreads * kEach;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t counter = begin + k * kThreads + threadIdx.x;
      if (4 * counter - first < n) four(counter, shared.key);
    }
  }

  __device__ __forceinline__ void four(int64_t counter, uint64_t key) const {
    const auto words = Philox::at(key, static_cast<uint64_t>(counter), at.call);
    const int64_t i = 4 * counter - first;
    Pack<C, 4> factors;
#pragma unroll
    for (int j = 0; j < 4; ++j) factors.at[j] = mask.drops(words[j] >> 8) ? C(0) : kept;
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
  const DropoutMask mask(p, at);
  const int64_t first = first_of_batch(at, n, x.dim() ? x.size(0) : 1);
  const int64_t counters = (first + n - 1) / 4 - first / 4 + 1;
  const uint64_t* step = capturing() ? step_cell() : nullptr;
  for_float("dropout", x.dtype(), [&]<class T>(T) {
    T* out = y.mutable_data<T>();
    const T* in = x.data<T>();
    const auto run = [&]<bool kWhole>(std::bool_constant<kWhole>) {
      using Kernel = Dropout<T, kWhole>;
      launch("dropout", blocks_for(counters, Kernel::kThreads, Kernel::kEach),
             Kernel{out, in, n, first, mask, static_cast<compute_t<T>>(mask.kept), at, step});
    };
    if (first % 4 == 0 && are_aligned({out, in})) {
      run(std::true_type());
    } else {
      run(std::false_type());
    }
  });
}

}  // namespace ink::cuda
