// Draws from probabilities: the twin of autograd/ops/sample.cpp, with the same draws.
//   y = the first i with p_0 + ... + p_i > u, u uniform in [0, 1)
#include <string>

#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/random/sample_units.h"
#include "cuda/ids.cuh"
#include "cuda/random.cuh"

namespace ink::cuda {
namespace {

// A block takes a row, and each warp a contiguous part of it. First all warps add up their parts.
// Then the warp in whose part the sum passes u finds the element.
template <class T>
struct Sample {
  static constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
  struct Shared {
    uint64_t totals[kWarps];
    int64_t last[kWarps];
  };
  int64_t* ids;
  const T* all;
  int64_t n;
  Draws draws;
  Fault* fault;
  Fault not_whole;

  __device__ void operator()(Shared& shared) const {
    const int64_t row = blockIdx.x, size = (n + kThreads - 1) / kThreads * kWarp;
    const int64_t begin = warp_id() * size, end = begin + size < n ? begin + size : n;
    const T* p = all + row * n;
    add_up(p, begin, end, shared);
    __syncthreads();
    // Every warp adds up the totals; lane i holds that of warp i.
    const uint64_t before = warp_running<SampleUnits>(shared.totals[lane_id()]);
    const uint64_t total = warp_from(before, kWarps - 1);
    const int64_t last = warp_reduce<Larger>(shared.last[lane_id()]);
    if (!SampleUnits::are_whole(total)) {
      if (threadIdx.x == 0) {
        Fault found = not_whole;
        found.value = row;
        note(fault, found);
        ids[row] = 0;
      }
      return;
    }
    const RandomPosition& at = draws.at;
    const uint64_t place = at.first_row + static_cast<uint64_t>(row);
    const uint64_t u = SampleUnits::draw(draws.key(), place, at.call);
    const int warp = warp_run(before <= u);  // the first whose part takes the sum past u
    if (warp == kWarps) {
      if (threadIdx.x == 0) ids[row] = last;  // rounding can leave a remainder: take the last
    } else if (warp == warp_id()) {
      const uint64_t below = warp_from(before - shared.totals[lane_id()], warp);
      const int64_t chosen = find(p, begin, end, below, u);
      if (lane_id() == 0) ids[row] = chosen;
    }
  }

  __device__ static uint64_t units(const T* p, int64_t i, int64_t end) {
    return i < end ? SampleUnits::of(static_cast<compute_t<T>>(p[i])) : 0;
  }
  __device__ static void add_up(const T* p, int64_t begin, int64_t end, Shared& shared) {
    uint64_t total = 0;
    int64_t last = 0;
#pragma unroll 8
    for (int64_t i = begin + lane_id(); i < end; i += kWarp) {
      const uint64_t one = units(p, i, end);
      total = SampleUnits::join(total, one);
      if (one > 0) last = i;
    }
    total = warp_running<SampleUnits>(total);
    last = warp_reduce<Larger>(last);
    if (lane_id() == kWarp - 1) {
      shared.totals[warp_id()] = total;
      shared.last[warp_id()] = last;
    }
  }

  // The element at which the sum passes u; the sum before begin is `below`.
  __device__ static int64_t find(const T* p, int64_t begin, int64_t end, uint64_t below,
                                 uint64_t u) {
    for (int64_t i = begin;; i += kWarp) {
      const uint64_t sum = below + warp_running<SampleUnits>(units(p, i + lane_id(), end));
      const int ahead = warp_run(sum <= u);
      if (ahead < kWarp) return i + ahead;
      below = warp_from(sum, kWarp - 1);
    }
  }
};

}  // namespace

void sample(Array& ids, const Array& probabilities, const RandomPosition& at) {
  Fault not_whole;
  not_whole.words = [](const Fault& f) {
    return "sample: the probabilities of row " + std::to_string(f.value) +
           " are not finite, or do not sum to 1";
  };
  for_float("sample", probabilities.dtype(), [&]<class T>(T) {
    launch("sample", ids.numel(),
           Sample<T>{ids.mutable_data<int64_t>(), probabilities.data<T>(), probabilities.size(-1),
                     Draws(at), fault_cell(), not_whole});
  });
}

}  // namespace ink::cuda
