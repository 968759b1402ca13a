// The one loop behind every reduction: any dimensions of a tensor of any strides, without a copy.
//
// A type R says what is computed:
//   Element                           float, double, int64_t or bool: others are converted
//   Acc                               the state after the elements seen so far
//   Result                            the type of what it gives
//   none()                            the state after no elements
//   add(acc, p)                       adds the element *p
//   add_eight(acc, p, row)            adds p[i row] for i = 0 ... 7, as a tree: fast, with three
//                                     roundings where a chain has eight
//   merge(acc, other)                 adds another state
//   repeat(acc, times)                the state if each element had come `times` times
//   result(acc)                       an R has what it needs for that
// What is compiled for an R are two loops over elements that follow each other: many accumulators
// side by side take a row each time (sums of columns), or one accumulator takes a row, by lanes
// that are merged at the end. Plan, threads, strides and dtypes are compiled once, in
// reduce_loop.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "autograd/base/dtype.h"
#include "autograd/loops/lanes.h"
#include "autograd/loops/reduce_plan.h"
#include "autograd/memory/array.h"

namespace ink {

namespace detail {

// An R, for code that does not know it.
struct Reducer {
  const void* self;
  DType element, result;
  int64_t bytes;  // of an accumulator
  void (*clear)(void* acc, int64_t n);
  // acc[0 .. width) += `count` rows of `width` elements, the next one `next` elements on.
  void (*add_columns)(void* acc, int64_t width, const void* x, int64_t count, int64_t next);
  // acc[k] += the n elements from k `next` on, for k < outputs.
  void (*add_rows)(void* acc, int64_t outputs, const void* x, int64_t n, int64_t next);
  void (*merge)(void* acc, const void* other, int64_t n);
  // y[0 .. n) = the results, every element counted `times` times.
  void (*results)(const void* self, void* y, void* acc, int64_t n, int64_t times);
};
void run_reduction(const Reducer& reducer, Array& y, const Array& x);

template <class R>
struct ReduceLoops {
  using Acc = typename R::Acc;
  using T = typename R::Element;

  static void clear(void* acc, int64_t n) { std::fill_n(static_cast<Acc*>(acc), n, R::none()); }

  static void add_columns(void* acc, int64_t width, const void* x, int64_t count, int64_t next) {
    Acc* a = static_cast<Acc*>(acc);
    const T* p = static_cast<const T*>(x);
    for (; count >= 8; count -= 8, p += 8 * next) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) R::add_eight(a[c], p + c, next);
    }
    for (; count > 0; --count, p += next) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) R::add(a[c], p + c);
    }
  }

  // The lanes stay in registers.
  template <int64_t lanes>
  static Acc row(const T* p, int64_t n) {
    Acc own[lanes], rest = R::none();  // apart: a store into a vector delays its load
    std::fill_n(own, lanes, R::none());
    for (; n >= 8 * lanes; n -= 8 * lanes, p += 8 * lanes) {
#pragma omp simd
      for (int64_t c = 0; c < lanes; ++c) R::add_eight(own[c], p + c, lanes);
    }
    for (; n >= lanes; n -= lanes, p += lanes) {
#pragma omp simd
      for (int64_t c = 0; c < lanes; ++c) R::add(own[c], p + c);
    }
    for (; n > 0; --n, ++p) R::add(rest, p);
    const auto merged = [](Acc a, const Acc& b) {
      R::merge(a, b);
      return a;
    };
    return merged(join_lanes<lanes>(own, merged), rest);
  }
  static void add_rows(void* acc, int64_t outputs, const void* x, int64_t n, int64_t next) {
    Acc* a = static_cast<Acc*>(acc);
    const T* p = static_cast<const T*>(x);
    constexpr int64_t kLanes = ReducePlan::kLanes;
    for (int64_t k = 0; k < outputs; ++k, p += next)
      R::merge(a[k], n < ReducePlan::kLongRow ? row<kLanes / 2>(p, n) : row<kLanes>(p, n));
  }

  static void merge(void* acc, const void* other, int64_t n) {
    Acc* a = static_cast<Acc*>(acc);
    const Acc* b = static_cast<const Acc*>(other);
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) R::merge(a[c], b[c]);
  }

  static void results(const void* self, void* y, void* acc, int64_t n, int64_t times) {
    Acc* a = static_cast<Acc*>(acc);
    auto* result = static_cast<typename R::Result*>(y);
    const R own = *static_cast<const R*>(self);
    for (int64_t c = 0; times != 1 && c < n; ++c) R::repeat(a[c], times);
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) result[c] = own.result(a[c]);
  }
};

/// Joins at(0), ... at(7) as a tree.
template <class At, class Join>
[[gnu::always_inline]] inline auto tree_of_eight(At at, Join join) {
  return join(join(join(at(0), at(1)), join(at(2), at(3))),
              join(join(at(4), at(5)), join(at(6), at(7))));
}

/// The same and `acc` for F = Extreme (folds.h), with one look for NaN per two values.
template <class F, class At>
[[gnu::always_inline]] inline typename F::Near extreme_of_eight(typename F::Near acc, At at) {
  const auto join = [](auto a, auto b) { return F::of_numbers(a, b); };
  const auto best = join(acc, tree_of_eight(at, join));
  if constexpr (!F::Limits::has_quiet_NaN) return best;
  const auto nan = [&](int64_t i) -> int { return std::isunordered(at(i), at(i + 1)); };
  const int nans = nan(0) | nan(2) | nan(4) | nan(6) | std::isunordered(acc, acc);
  return nans ? F::Limits::quiet_NaN() : best;
}

}  // namespace detail

/// Reduces x into the shape of y: x's dimensions, the reduced ones of size 1.
template <class R>
void reduce_loop(const R& reduction, Array& y, const Array& x) {
  using Loops = detail::ReduceLoops<R>;
  const detail::Reducer reducer{&reduction,
                                dtype_of<typename R::Element>(),
                                dtype_of<typename R::Result>(),
                                sizeof(typename R::Acc),
                                Loops::clear,
                                Loops::add_columns,
                                Loops::add_rows,
                                Loops::merge,
                                Loops::results};
  detail::run_reduction(reducer, y, x);
}

}  // namespace ink
