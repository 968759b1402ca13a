// Products of a matrix with a vector, on one thread: by dot products with the rows of a matrix, or
// by adding its rows up.
#pragma once

#include <algorithm>
#include <cstdint>

#include "autograd/base/dtype.h"
#include "autograd/gemm/small_product.h"
#include "autograd/loops/lanes.h"

namespace ink {
namespace detail {

/// Two vectors' worth of elements as T, from anywhere in memory: halves of a run, or of bf16 those
/// with even and those with odd numbers, because that takes fewer instructions.
template <class T, class From>
struct Pair {
  Vector<T> first, second;

  explicit Pair(const From* x) : first(load_vector(x)), second(load_vector(x + kLanes<T>)) {}
};
template <>
struct Pair<float, bfloat16> {
  Vector<float> first, second;

  explicit Pair(const bfloat16* x) {
    typedef uint32_t Bits __attribute__((vector_size(kVectorBytes), aligned(2), may_alias));
    const Bits bits = *reinterpret_cast<const Bits*>(x);
    first = reinterpret_cast<Vector<float>>(bits << 16);
    second = reinterpret_cast<Vector<float>>(bits & 0xffff0000);
  }
};

/// The sum of a vector's lanes, by halves.
template <class T>
T sum_of_lanes(const Vector<T>& x) {
  T lanes[kLanes<T>];
  store_vector(lanes, x);
  return join_lanes<kLanes<T>>(lanes, [](T a, T b) { return a + b; });
}

/// The dot products of R rows, ld apart, with V vectors x, ld_x apart. For V = 1, U pairs of
/// vectors of each are summed separately. totals: those with the first x, then, next_x on, those
/// with the second.
template <int R, int V, int U, class T, class M>
void dot_some_rows(const M* rows, int64_t ld, const M* x, int64_t ld_x, int64_t n, T* totals,
                   int64_t next_x) {
  constexpr int64_t kRun = 2 * kLanes<T>;
  constexpr int64_t kAhead = 2048 / sizeof(M);  // rows are too short for the processor's prefetcher
  Vector<T> sums[V][R][2 * U] = {};
  const auto add = [&](int64_t at, int u) {
    for (int v = 0; v < V; ++v) {
      const Pair<T, M> factor(x + v * ld_x + at);
      for (int r = 0; r < R; ++r) {
        const M* here = rows + r * ld + at;
        if (v == 0) __builtin_prefetch(here + kAhead);
        const Pair<T, M> element(here);
        sums[v][r][2 * u] += element.first * factor.first;
        sums[v][r][2 * u + 1] += element.second * factor.second;
      }
    }
  };
  int64_t i = 0;
  for (; i + U * kRun <= n; i += U * kRun) {
    for (int u = 0; u < U; ++u) add(i + u * kRun, u);
  }
  for (; i + kRun <= n; i += kRun) add(i, 0);
  for (int v = 0; v < V; ++v) {
    for (int r = 0; r < R; ++r) {
      Vector<T> sum = sums[v][r][0];
      for (int u = 1; u < 2 * U; ++u) sum += sums[v][r][u];
      T total = sum_of_lanes<T>(sum);
      for (int64_t l = i; l < n; ++l)
        total += static_cast<T>(rows[r * ld + l]) * static_cast<T>(x[v * ld_x + l]);
      totals[v * next_x + r] = total;
    }
  }
}

}  // namespace detail

/// totals[r] = the dot product of row r, ld elements from the one before, with x, of n elements.
template <class T, class M>
void dot_rows(const M* rows, int64_t ld, const M* x, int64_t n, T* totals, int64_t count) {
  int64_t r = 0;
  for (; r + 4 <= count; r += 4)
    detail::dot_some_rows<4, 1, 1>(rows + r * ld, ld, x, 0, n, totals + r, 0);
  for (; r < count; ++r) detail::dot_some_rows<1, 1, 4>(rows + r * ld, ld, x, 0, n, totals + r, 0);
}

/// The same for `vectors` of x, ld_x apart: totals[v * next_x + r].
template <class T, class M>
void dot_products(const M* rows, int64_t ld, int64_t count, const M* x, int64_t ld_x,
                  int64_t vectors, int64_t n, T* totals, int64_t next_x) {
  constexpr int R = kBlockVectors;  // of so many rows and three vectors registers hold the sums
  for (int64_t r = 0; r < count; r += R) {
    const M* here = rows + r * ld;
    for (int64_t v = 0; v < vectors;) {
      const int64_t left = vectors - v;
      const M* factors = x + v * ld_x;
      T* to = totals + v * next_x + r;
      if (r + R > count || left == 1) {
        dot_rows(here, ld, factors, n, to, std::min<int64_t>(R, count - r));
        v += 1;
      } else if (left == 2 || left == 4) {
        detail::dot_some_rows<R, 2, 1>(here, ld, factors, ld_x, n, to, next_x);
        v += 2;
      } else {
        detail::dot_some_rows<R, 3, 1>(here, ld, factors, ld_x, n, to, next_x);
        v += 3;
      }
    }
  }
}

/// sums[j] = the sum of x[l] times element j of row l, ld elements from the one before, for k rows.
template <class T, class M, class X>
void add_rows(const M* rows, int64_t ld, const X* x, int64_t k, T* sums, int64_t n) {
  std::fill_n(sums, n, T{0});
  int64_t l = 0;
  for (; l + 4 <= k; l += 4) {
    const M *m0 = rows + l * ld, *m1 = m0 + ld, *m2 = m1 + ld, *m3 = m2 + ld;
    const T x0 = static_cast<T>(x[l]), x1 = static_cast<T>(x[l + 1]), x2 = static_cast<T>(x[l + 2]),
            x3 = static_cast<T>(x[l + 3]);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j)
      sums[j] += x0 * static_cast<T>(m0[j]) + x1 * static_cast<T>(m1[j]) +
                 (x2 * static_cast<T>(m2[j]) + x3 * static_cast<T>(m3[j]));
  }
  for (; l < k; ++l) {
    for (int64_t j = 0; j < n; ++j)
      sums[j] += static_cast<T>(x[l]) * static_cast<T>(rows[l * ld + j]);
  }
}

}  // namespace ink
