// Dropout: the twin of autograd/ops/dropout.cpp, with the same mask, bit for bit.
//   y  = x mask,  mask = 0 with probability p, else 1 / (1 - p)
//   dx = dy mask
#include "autograd/ops/dropout_mask.h"
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

// A thread takes the four elements of the whole batch that one counter gives random words for.
template <class T, bool kAligned>
struct Dropout {
  static constexpr int kThreads = 256, N = 4;
  using C = compute_t<T>;
  struct Shared {
    uint64_t key;
  };
  T* y;
  const T* x;
  int64_t n, first;  // elements, and where the first of them stands in the whole batch
  uint32_t threshold;
  C kept;
  RandomPosition at;
  const uint64_t* step;  // where to read it on the device; null: at.step

  __device__ void operator()(Shared& shared) const {
    if (threadIdx.x == 0)
      shared.key = Philox::derive(at.seed, step ? *step : at.step, at.micro_batch);
    __syncthreads();
    const int64_t counter = first / N + global_thread(), start = counter * N - first;
    if (start >= n) return;
    const auto words = Philox::at(shared.key, static_cast<uint64_t>(counter), at.call);
    const auto dropped = [&](int k, C v) { return words[k] >> 8 < threshold ? C(0) : v * kept; };
    if (kAligned && start + N <= n) {
      Pack<C, N> v = load<N>(x + start);
#pragma unroll
      for (int k = 0; k < N; ++k) v.at[k] = dropped(k, v.at[k]);
      return store(y + start, v);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int64_t i = start + k;
      if (i >= 0 && i < n) y[i] = static_cast<T>(dropped(k, static_cast<C>(x[i])));
    }
  }
};

}  // namespace

void dropout(Tensor& y, const Tensor& x, double p, const RandomPosition& at) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const int64_t first = first_of_batch(at, n, x.dim() ? x.size(0) : 1);
  for_float("dropout", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    T* out = y.mutable_data<T>();
    const T* in = x.data<T>();
    const auto run = [&]<bool kAligned>(std::bool_constant<kAligned>) {
      const Dropout<T, kAligned> kernel{out,
                                        in,
                                        n,
                                        first,
                                        static_cast<uint32_t>(std::ceil(p * 0x1p24)),
                                        static_cast<C>(1 / (1 - p)),
                                        at,
                                        capturing() ? step_cell() : nullptr};
      launch("dropout", blocks_for(first % 4 + n, kernel.kThreads, kernel.N), kernel);
    };
    if (first % 4 == 0 && are_aligned({out, in})) {
      run(std::true_type());
    } else {
      run(std::false_type());
    }
  });
}

}  // namespace ink::cuda
