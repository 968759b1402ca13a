// Shared by kernels of rows (the last dimension, n elements).
//
// A warp takes a row if its 32 lanes can keep it in registers; a block takes a longer row. Elements
// for which a block has no registers are parked in shared memory, if the kernel has any for that,
// and the rest is read again each time. Every thread takes packs of N contiguous elements: 16 bytes
// if memory is aligned to that (kPacked), otherwise one element.
//   const Row<T, Plan> a(x, Plan::row() * n, n);
//   a.each([&](RowPlace i) { total += sum(a[i]); });
// If packs do not divide a row's length, most rows do not start where a pack can. Long rows are
// taken in packs all the same. At their ends a pack reaches out of the row and holds a neutral
// number there. each() visits those two packs last, and put() writes only the row's own elements.
#pragma once

#include <initializer_list>
#include <limits>

#include "autograd/kernels/copy.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "cuda/pack.cuh"

namespace ink::cuda {

// ---- rows

/// Rows taken by kSize threads each, a warp or a block; a thread keeps kHeld packs of a row in
/// registers, and the next kParked in shared memory. Do rows start anywhere?
template <int N_, int kSize_, int kHeld_, bool kAnywhere_ = false, int kParked_ = 0>
struct RowPlan {
  static constexpr int N = N_, kSize = kSize_, kHeld = kHeld_, kParked = kParked_;
  static constexpr bool kAnywhere = kAnywhere_;
  static constexpr int kThreads = kSize == kWarp ? 4 * kWarp : kSize;
  static constexpr int kRows = kThreads / kSize;  // rows of a block

  static int64_t blocks(int64_t rows) { return blocks_for(rows, kRows); }
  /// The calling thread's row, and its number among the row's threads.
  __device__ static int64_t row() {
    return static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kSize;
  }
  __device__ static int rank() { return static_cast<int>(threadIdx.x % kSize); }
  /// Joins the values of the row's threads; each of them gets the result.
  template <class Op, class C>
  __device__ static C join(C value, BlockScratch<C>& scratch) {
    if constexpr (kSize == kWarp) {
      return warp_reduce<Op>(value);
    } else {
      return block_reduce<Op, kThreads>(value, scratch);
    }
  }
};

/// A choice for plan_rows: kThreads threads take a row. Each keeps kElements of it and parks
/// kParked, or half as many if elements have 8 bytes. kAnywhere: the kernel takes rows that start
/// anywhere.
template <int kThreads, int kElements, bool kAnywhere_ = false, int kParked = 0>
struct RowSize {
  static constexpr bool kAnywhere = kAnywhere_;
  template <class T>
  static constexpr int share(int elements) {
    return sizeof(T) == 8 ? elements / 2 : elements;
  }
  template <class T>
  static constexpr bool holds(int64_t n) {
    return n <= kThreads * share<T>(kElements + kParked);
  }
  template <class T, int N, bool kShifts = false>
  using Plan = RowPlan<N, kThreads, share<T>(kElements) / N, kShifts, share<T>(kParked) / N>;
};

/// Calls f(RowPlan<...>()) for rows of n elements in arrays that start at `pointers`. T is the
/// widest element type. The plan is the first of the sizes whose threads keep a whole row, or else
/// the last.
template <class T, class Size, class... Larger, class F>
void plan_rows(int64_t n, std::initializer_list<const void*> pointers, const F& f) {
  constexpr int kWide = sizeof(T) < 8 ? kPacked<T> : 1;  // f64 checks others: fewer kernels for it
  constexpr bool kShifts = kWide > 1 && Size::kAnywhere;
  if (sizeof...(Larger) > 0 && !Size::template holds<T>(n)) {
    if constexpr (sizeof...(Larger) > 0) plan_rows<T, Larger...>(n, pointers, f);
  } else if (n % kWide == 0 && are_aligned(pointers)) {
    f(typename Size::template Plan<T, kWide>());
  } else if (kShifts && are_aligned(pointers)) {
    f(typename Size::template Plan<T, kWide, kShifts>());
  } else {
    f(typename Size::template Plan<T, 1>());
  }
}

/// One of a thread's packs of a row: the number of its register, or of its place in shared memory
/// after the registers, or else kKept; and where in the row it starts.
struct RowPlace {
  int slot;
  int64_t at;
};

/// The packs that a block parks. Each thread has its own; those of neighbouring threads are
/// adjacent.
template <class T, class Plan>
struct ParkedRow {
  Pack<T, Plan::N> packs[Plan::kParked][Plan::kThreads];
};

/// The calling thread's share of a row.
template <class T, class Plan>
class Row {
  static constexpr int N = Plan::N, kHeld = Plan::kHeld, kStep = Plan::kSize * N;
  static constexpr int kParked = Plan::kParked, kKept = kHeld + kParked;
  using C = compute_t<T>;

 public:
  /// The n elements from x[start] on. outside: the number that packs hold beyond the row's ends.
  /// parked: needed if the plan parks packs.
  __device__ __forceinline__ Row(const T* x, int64_t start, int64_t n, C outside = 0,
                                 ParkedRow<T, Plan>* parked = nullptr)
      : from_(x + start), n_(n), end_(n), outside_(outside), parked_(parked) {
    if constexpr (Plan::kAnywhere) {
      begin_ = -start & (N - 1);
      end_ = begin_ + ((n - begin_) & ~int64_t{N - 1});
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int64_t at = begin_ + Plan::rank() * N + k * kStep;
      if (at >= end_) break;
      held_[k] = *reinterpret_cast<const Pack<T, N>*>(from_ + at);
    }
#pragma unroll
    for (int k = 0; k < kParked; ++k) {
      const int64_t at = begin_ + Plan::rank() * N + (kHeld + k) * kStep;
      if (at >= end_) break;
      parked_->packs[k][threadIdx.x] = *reinterpret_cast<const Pack<T, N>*>(from_ + at);
    }
  }

  /// Calls f(place) for each pack.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
    whole_packs(f);
    if constexpr (Plan::kAnywhere) {  // the first thread may have one before, the second one after
      const int64_t at = Plan::rank() == 0 ? begin_ - N : end_;
      if (Plan::rank() < 2 && at > -N && at < n_) f(RowPlace{kKept, at});
    }
  }

  __device__ __forceinline__ Pack<C, N> operator[](RowPlace i) const {
    const auto wide = [](T v) { return static_cast<C>(v); };
    if (i.slot < kHeld) return zip(wide, held_[i.slot]);
    if constexpr (kParked > 0) {
      if (i.slot < kKept) return zip(wide, parked_->packs[i.slot - kHeld][threadIdx.x]);
    }
    if (is_whole(i)) return load<N>(from_ + i.at);
    Pack<C, N> values;
#pragma unroll
    for (int j = 0; j < N; ++j)
      values.at[j] = in_row(i.at + j) ? static_cast<C>(from_[i.at + j]) : outside_;
    return values;
  }

  /// Adds f(place, pack) of the row at `branch`, keeps the sum as the row, and writes it to `to`.
  template <class B, class F>
  __device__ __forceinline__ void add(const B* branch, T* to, const F& f) {
    static_assert(!Plan::kAnywhere && kParked == 0);
    whole_packs([&](RowPlace i) {
      const auto both = (*this)[i] + f(i, load<N>(branch + i.at));
      store(to + i.at, both);
      if (i.slot < kHeld) held_[i.slot] = zip([](C v) { return static_cast<T>(v); }, both);
    });
    from_ = to;
  }

  /// Writes a pack to its place in a row that starts at `to`.
  template <class D>
  __device__ __forceinline__ void put(D* to, RowPlace i, const Pack<C, N>& values) const {
    if (i.slot < kKept || is_whole(i)) return store(to + i.at, values);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (in_row(i.at + j)) to[i.at + j] = static_cast<D>(values.at[j]);
  }

 private:
  template <class F>
  __device__ __forceinline__ void whole_packs(const F& f) const {
    int64_t at = begin_ + Plan::rank() * N;
#pragma unroll
    for (int k = 0; k < kKept; ++k, at += kStep) {
      if (at >= end_) return;
      f(RowPlace{k, at});
    }
    for (; at < end_; at += kStep) f(RowPlace{kKept, at});
  }
  __device__ bool in_row(int64_t at) const { return at >= 0 && at < n_; }
  __device__ bool is_whole(RowPlace i) const {
    return !Plan::kAnywhere || (i.at >= 0 && i.at < end_);
  }

  const T* from_;
  int64_t n_, begin_ = 0, end_;  // whole packs are from begin_ to end_
  C outside_;
  ParkedRow<T, Plan>* parked_;
  Pack<T, N> held_[kHeld] = {};
};

// ---- softmax

/// softmax over the last dimension or, if `log`, log_softmax; and their gradients (softmax.cu).
void softmax_rows(Array& y, const Array& x, bool log);
void softmax_rows_backward(Array& dx, const Array& dy, const Array& y, bool log);

template <class C>
__device__ constexpr C infinity() {
  return std::numeric_limits<C>::infinity();
}

/// e^x for x <= 0 by the GPU's own 2^x. The relative error is 2^-21 near 0, where terms of a
/// softmax matter, and 2^-17 at x = -80, because x log2(e) is rounded.
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
  /// Joins those of all threads of the row.
  template <class Plan>
  __device__ void join(BlockScratch<C>& scratch) {
    const C most = Plan::template join<Larger>(top, scratch);
    total = Plan::template join<Plus>(total * exp_nonpositive(top - most), scratch);
    top = most;
  }
  /// The twin of others_of in autograd/loops/rows.h, for the joined sums of row a.
  template <class Plan, class Row>
  __device__ C others(const Row& a, BlockScratch<C>& scratch) const {
    if (!(C(0.5) < total && total < simd::kOneTerm<C>)) return total - 1;  // 0: all are -inf
    C mine = 0;
    const auto term = [this](C v) {
      const C e = exp_nonpositive(v - top);
      return e < C(0.5) ? e : C(0);
    };
    a.each([&](RowPlace i) { mine += sum(zip(term, a[i])); });
    return Plan::template join<Plus>(mine, scratch);
  }
};

}  // namespace ink::cuda
