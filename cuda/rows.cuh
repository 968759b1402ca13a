// What kernels of rows (the last dimension, n elements) share.
//
// A row is a warp's if its 32 lanes can keep it in registers, a block's if it is longer, and what
// not even a block can keep is read again each time. Every thread takes packs of N elements that
// lie side by side, N at a time being 16 bytes where memory is aligned to that and 1 elsewhere:
//   const Row<T, Plan> a(x, Plan::row(), n);
//   a.each([&](RowPlace i) { total += sum(a[i]); });
#pragma once

#include <limits>

#include "autograd/kernels.h"
#include "autograd/ops/rows.h"
#include "autograd/simd.h"
#include "cuda/pack.cuh"

namespace ink::cuda {

// ---- rows

/// Rows taken by kSize threads each, a warp or a block; a thread keeps kHeld packs of a row.
template <int N_, int kSize_, int kHeld_>
struct RowPlan {
  static constexpr int N = N_, kSize = kSize_, kHeld = kHeld_;
  static constexpr int kThreads = kSize == kWarp ? 4 * kWarp : kSize;
  static constexpr int kRows = kThreads / kSize;  // of a block

  static int64_t blocks(int64_t rows) { return (rows + kRows - 1) / kRows; }
  /// The calling thread's row, and its number among the row's threads.
  __device__ static int64_t row() {
    return static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kSize;
  }
  __device__ static int rank() { return static_cast<int>(threadIdx.x % kSize); }
  /// The values of the row's threads joined, in every one of them.
  template <class Op, class C>
  __device__ static C join(C value, BlockScratch<C>& scratch) {
    if constexpr (kSize == kWarp) {
      return warp_reduce<Op>(value);
    } else {
      return block_reduce<Op, kThreads>(value, scratch);
    }
  }
};

/// A choice of plan_rows: kThreads a row, each keeping kElements of it, or half of them if they
/// have 8 bytes.
template <int kThreads, int kElements>
struct RowSize {
  template <class T>
  static constexpr int elements = sizeof(T) == 8 ? kElements / 2 : kElements;
  template <class T>
  static constexpr bool holds(int64_t n) {
    return n <= kThreads * elements<T>;
  }
  template <class T, int N>
  using Plan = RowPlan<N, kThreads, elements<T> / N>;
};

/// Calls f(RowPlan<...>()) for rows of n elements, the widest of type T, in arrays that start at
/// `pointers`, with the first of the sizes whose threads keep a whole row, or else the last.
template <class T, class Size, class... Larger, class F>
void plan_rows(int64_t n, std::initializer_list<const void*> pointers, const F& f) {
  constexpr int kWide = 16 / sizeof(T);
  if (sizeof...(Larger) > 0 && !Size::template holds<T>(n)) {
    if constexpr (sizeof...(Larger) > 0) plan_rows<T, Larger...>(n, pointers, f);
  } else if (n % kWide == 0 && are_aligned(pointers)) {
    f(typename Size::template Plan<T, kWide>());
  } else {
    f(typename Size::template Plan<T, 1>());
  }
}
/// The same with the usual sizes, for kernels that keep kArrays rows.
template <class T, int kArrays = 1, class F>
void plan_rows(int64_t n, std::initializer_list<const void*> pointers, const F& f) {
  constexpr int kElements = 32 / kArrays;
  plan_rows<T, RowSize<kWarp, kElements>, RowSize<256, kElements>, RowSize<1024, kElements>>(
      n, pointers, f);
}

/// One of the packs of a row that a thread takes: the number of the register that keeps it, kHeld
/// if none does, and where in the row it starts.
struct RowPlace {
  int slot;
  int64_t at;
};

/// The calling thread's share of a row.
template <class T, class Plan>
class Row {
  static constexpr int N = Plan::N, kHeld = Plan::kHeld, kStep = Plan::kSize * N;

 public:
  __device__ __forceinline__ Row(const T* x, int64_t row, int64_t n) : from_(x + row * n), n_(n) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int64_t at = Plan::rank() * N + k * kStep;
      if (at >= n_) break;
      held_[k] = *reinterpret_cast<const Pack<T, N>*>(from_ + at);
    }
  }

  /// Calls f(place) for each pack.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
    int64_t at = Plan::rank() * N;
#pragma unroll
    for (int k = 0; k < kHeld; ++k, at += kStep) {
      if (at >= n_) return;
      f(RowPlace{k, at});
    }
    for (; at < n_; at += kStep) f(RowPlace{kHeld, at});
  }

  __device__ __forceinline__ Pack<compute_t<T>, N> operator[](RowPlace i) const {
    if (i.slot == kHeld) return load<N>(from_ + i.at);
    return zip([](T v) { return static_cast<compute_t<T>>(v); }, held_[i.slot]);
  }

 private:
  const T* from_;
  int64_t n_;
  Pack<T, N> held_[kHeld] = {};
};

// ---- softmax

template <class C>
__device__ constexpr C infinity() {
  return std::numeric_limits<C>::infinity();
}

/// e^x for x <= 0: a float within 2^-21 of it, relatively, by the GPU's own 2^x.
__device__ inline float exp_nonpositive(float x) {
#ifdef INKLING_EMULATED
  return simd::exp_nonpositive(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
#endif
}
__device__ inline double exp_nonpositive(double x) { return simd::exp_nonpositive(x); }

/// max v and sum exp(v - max v) of the numbers seen so far.
template <class C>
struct SoftmaxSums {
  C top = std::numeric_limits<C>::lowest();  // so that exp(-inf - top) is 0
  C total = 0;

  template <int N>
  __device__ __forceinline__ void add(const Pack<C, N>& values) {
    C most = top;
#pragma unroll
    for (int j = 0; j < N; ++j) most = values.at[j] > most ? values.at[j] : most;
    if (most > top) total *= exp_nonpositive(top - most);
    top = most;
    total += sum(zip([most](C v) { return exp_nonpositive(v - most); }, values));
  }
  /// Those of all the row's threads.
  template <class Plan>
  __device__ void join(BlockScratch<C>& scratch) {
    const C most = Plan::template join<Larger>(top, scratch);
    total = Plan::template join<Plus>(total * exp_nonpositive(top - most), scratch);
    top = most;
  }
};

}  // namespace ink::cuda
