// Loops of row kernels, which treat each row of n numbers (the last dimension) by itself. The loops
// are vectorised, with f inlined into them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/memory/array.h"

namespace ink {

/// The number of rows of x: all its dimensions but the last.
inline int64_t row_count(const Array& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

/// Calls f(row) for each row of n elements, in parallel. f should capture by value: every thread
/// works with a copy of its own, whose pointers stay in registers.
template <class F>
void for_each_row(int64_t rows, int64_t n, const F& f) {
  parallel_for(rows, kGrain / std::max<int64_t>(n, 1), [&f](int64_t begin, int64_t end) {
    const F own = f;
    for (int64_t row = begin; row < end; ++row) own(row);
  });
}

/// Rows of y from rows of the x..., all of one shape and one floating dtype T, in parallel:
/// f(n, T* y, const T*... x).
template <class F, class... Inputs>
void map_rows(const char* op, const F& f, Array& y, const Inputs&... x) {
  for_float(op, y.dtype(), [&]<class T>(T) {
    const int64_t n = y.size(-1);
    const auto run = [&](T* to, const auto*... from) {
      for_each_row(row_count(y), n, [=](int64_t row) { f(n, to + row * n, (from + row * n)...); });
    };
    run(y.mutable_data<T>(), x.template data<T>()...);
  });
}

/// The sum of f(i) for i < n. Blocks of 1024 floats are added up in double, so that a long row is
/// as accurate as a short one.
template <class C, class F>
[[gnu::always_inline]] inline C sum_of(int64_t n, F&& f) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = std::min(n, begin + 1024);
    C part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) part += f(i);
    total += static_cast<double>(part);
  }
  return static_cast<C>(total);
}

/// Two sums at once: f(i, first, second) adds to both.
template <class C, class F>
[[gnu::always_inline]] inline std::pair<C, C> sums_of(int64_t n, F&& f) {
  double first = 0, second = 0;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = std::min(n, begin + 1024);
    C p = 0, q = 0;
#pragma omp simd reduction(+ : p, q)
    for (int64_t i = begin; i < end; ++i) f(i, p, q);
    first += static_cast<double>(p);
    second += static_cast<double>(q);
  }
  return {static_cast<C>(first), static_cast<C>(second)};
}

/// The maximum of f(i) for i < n. NaN is ignored; with no other value it is -inf.
template <class C, class F>
[[gnu::always_inline]] inline C max_of(int64_t n, F&& f) {
  C top = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = std::max<C>(top, f(i));
  return top;
}

/// Sums over all rows, such as the gradient of a weight that multiplies every row. f(row, sums)
/// adds the row's share to `width` sums; the totals are returned. Rows are summed in parts of 64,
/// and the parts are added up in double, so the bits do not depend on the number of threads.
template <class C, class F>
Array sum_over_rows(int64_t rows, int64_t width, const F& f) {
  constexpr int64_t kPart = 64;
  const int64_t parts = (rows + kPart - 1) / kPart;
  Array partial = Array::empty({parts, width}, dtype_of<C>()),
        total = Array::empty({width}, dtype_of<C>());
  C *sums = partial.mutable_data<C>(), *totals = total.mutable_data<C>();
  for_each_row(parts, kPart * width, [=](int64_t part) {
    const int64_t end = std::min(rows, (part + 1) * kPart);
    std::fill_n(sums + part * width, width, C(0));
    for (int64_t row = part * kPart; row < end; ++row) f(row, sums + part * width);
  });
  parallel_for(width, kGrain / std::max<int64_t>(parts, 1), [&](int64_t begin, int64_t end) {
    std::vector<double> wide(static_cast<size_t>(end - begin));
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t i = begin; i < end; ++i) wide[i - begin] += sums[part * width + i];
    }
    for (int64_t i = begin; i < end; ++i) totals[i] = static_cast<C>(wide[i - begin]);
  });
  return total;
}

/// Calls f(X{}, Y{}) with the C++ types of a norm's input and output. They are the same, or, under
/// Autocast, f32 and bf16.
template <class F>
void for_norm(const char* op, const Array& x, const Array& y, F&& f) {
  if (x.dtype() == f32 && y.dtype() == bf16) return f(float{}, bfloat16{});
  for_float(op, x.dtype(), [&]<class T>(T) { f(T{}, T{}); });
}

/// sum += part, if the sum is wanted (defined).
template <class C>
void add_part(Array& sum, const C* part) {
  if (!sum.defined()) return;
  C* to = sum.mutable_data<C>();
  for (int64_t i = 0; i < sum.numel(); ++i) to[i] += part[i];
}

}  // namespace ink
