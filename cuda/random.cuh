// Random numbers in kernels, and dropout's masks, which the kernels that drop draw themselves.
#pragma once

#include "autograd/memory/array.h"
#include "autograd/random/dropout_mask.h"

#include "cuda/pack.cuh"

namespace ink::cuda {

/// Where a launch draws: at a position, of whose numbers a replay takes the step from the device.
struct Draws {
  RandomPosition at;
  const uint64_t* step;  // null: at.step

  explicit Draws(const RandomPosition& position)
      : at(position), step(capturing() ? step_cell() : nullptr) {}
  __device__ uint64_t key() const {
    return Philox::derive(at.seed, step ? *step : at.step, at.micro_batch);
  }
};

/// The mask of ops/dropout.cpp. It equals the CPU's and does not depend on the launch: element i of
/// the whole batch has number i % 4 of counter i / 4.
struct DropoutFactors {
  DropoutMask mask;
  Draws draws;
  int64_t first;  // the index of x's first element in the whole batch

  DropoutFactors(const Array& x, double p, const RandomPosition& at)
      : mask(p, at), draws(at), first(first_of_batch(at, x.numel(), x.dim() ? x.size(0) : 1)) {}

  /// 0 or 1 / (1 - p), for each of N elements of x, from the one numbered i on.
  template <class C, int N>
  __device__ __forceinline__ Pack<C, N> factors(uint64_t key, int64_t i) const {
    Pack<C, N> all;
    const auto factor = [&](uint32_t word) {
      return mask.drops(word >> 8) ? C(0) : static_cast<C>(mask.kept);
    };
    const int64_t begin = first + i;
    if (N % 4 == 0 && begin % 4 == 0) {
#pragma unroll
      for (int q = 0; q < N / 4; ++q) {
        const auto words = Philox::at(key, static_cast<uint64_t>(begin / 4 + q), draws.at.call);
#pragma unroll
        for (int j = 0; j < 4; ++j) all.at[4 * q + j] = factor(words[j]);
      }
      return all;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const auto words = Philox::at(key, static_cast<uint64_t>((begin + j) / 4), draws.at.call);
      const int64_t k = (begin + j) % 4;
      all.at[j] = factor(k < 2 ? words[k == 0 ? 0 : 1] : words[k == 2 ? 2 : 3]);
    }
    return all;
  }
};

}  // namespace ink::cuda
