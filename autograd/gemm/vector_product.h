// Products of a matrix with a vector, on one thread: by dot products with the rows of a matrix, or
// by adding its rows up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "autograd/base/dtype.h"
#include "autograd/base/shuffle.h"
#include "autograd/gemm/small_product.h"

namespace ink {
namespace detail {

/// x, with zeros in the lanes l for which scale * l < from. J: 0 ... kLanes<T> - 1.
template <int scale, class T, int... J>
void clear_lanes(Vector<T>& x, int64_t from, std::integer_sequence<int, J...>) {
  using Numbers = decltype(x < x);
  using Number = std::remove_cvref_t<decltype(Numbers{}[0])>;
  x = Numbers{scale * J...} < static_cast<Number>(from) ? Vector<T>{} : x;
}

/// Two vectors' worth of elements as T, from anywhere in memory: halves of a run, or of bf16 those
/// with even and those with odd numbers, because that takes fewer instructions.
template <class T, class From>
struct Pair {
  static constexpr auto kNumbers = std::make_integer_sequence<int, kLanes<T>>();
  Vector<T> first, second;

  explicit Pair(const From* x) : first(load_vector(x)), second(load_vector(x + kLanes<T>)) {}
  /// Makes the elements before number `from` zeros.
  void clear_until(int64_t from) {
    clear_lanes<1, T>(first, from, kNumbers);
    clear_lanes<1, T>(second, from - kLanes<T>, kNumbers);
  }
};
template <>
struct Pair<float, bfloat16> {
  static constexpr auto kNumbers = std::make_integer_sequence<int, kLanes<float>>();
  Vector<float> first, second;

  explicit Pair(const bfloat16* x) {
    typedef uint32_t Bits __attribute__((vector_size(kVectorBytes), aligned(2), may_alias));
    const Bits bits = *reinterpret_cast<const Bits*>(x);
    first = reinterpret_cast<Vector<float>>(bits << 16);
    second = reinterpret_cast<Vector<float>>(bits & 0xffff0000);
  }
  void clear_until(int64_t from) {
    clear_lanes<2, float>(first, from, kNumbers);
    clear_lanes<2, float>(second, from - 1, kNumbers);
  }
};

/// Each run of B lanes of x and then of y becomes one of B / 2: its first half plus its second.
/// J: 0 ... kLanes<T> - 1.
template <int B, class T, int... J>
Vector<T> add_halves(const Vector<T>& x, const Vector<T>& y, std::integer_sequence<int, J...>) {
  constexpr int half = B / 2;
  return INK_SHUFFLE(x, y, (J / half * B + J % half)...) +
         INK_SHUFFLE(x, y, (J / half * B + J % half + half)...);
}

/// The sums of runs of B lanes of N vectors, by halves: sums[i] is that of run i.
template <class T, int N, int B = kLanes<T>>
[[gnu::always_inline]] inline void sums_of_lanes(const Vector<T>* x, T* sums) {
  if constexpr (B == 1) {
    for (int i = 0; i < N; ++i) store_vector(sums + i * kLanes<T>, x[i]);
  } else {
    constexpr int n = (N + 1) / 2;
    Vector<T> halves[n];
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i)
      halves[i] = add_halves<B, T>(x[2 * i], x[std::min(2 * i + 1, N - 1)],
                                   std::make_integer_sequence<int, kLanes<T>>());
    sums_of_lanes<T, n, B / 2>(halves, sums);
  }
}

/// The dot products of R rows, ld apart, with V vectors x, ld_x apart. For V = 1, U pairs of
/// vectors of each are summed separately. totals: those with the first x, then, next_x on, those
/// with the second.
template <int R, int V, int U, class T, class M>
void dot_some_rows(const M* rows, int64_t ld, const M* x, int64_t ld_x, int64_t n, T* totals,
                   int64_t next_x) {
  constexpr int64_t kRun = 2 * kLanes<T>;
  constexpr int64_t kAhead = 2048 / sizeof(M);  // rows are too short for the processor's prefetcher
  Vector<T> sums[V][R][2 * U];
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int u = 0; u < 2 * U; ++u) sums[v][r][u] = Vector<T>{};
    }
  }
  // Adds the products of the run at `at`, without its first `skipped`.
  const auto add = [&]<bool part>(int64_t at, int u, int64_t skipped) {
    Vector<T> factors[V][2];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) {
      Pair<T, M> factor(x + v * ld_x + at);
      if constexpr (part) factor.clear_until(skipped);
      factors[v][0] = factor.first;
      factors[v][1] = factor.second;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const M* here = rows + r * ld + at;
      if constexpr (!part) __builtin_prefetch(here + kAhead);
      Pair<T, M> element(here);
      if constexpr (part) element.clear_until(skipped);
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) {
        sums[v][r][2 * u] += element.first * factors[v][0];
        sums[v][r][2 * u + 1] += element.second * factors[v][1];
      }
    }
  };
  int64_t i = 0;
  for (; i + U * kRun <= n; i += U * kRun) {
    for (int u = 0; u < U; ++u) add.template operator()<false>(i + u * kRun, u, 0);
  }
  for (; i + kRun <= n; i += kRun) add.template operator()<false>(i, 0, 0);
  if (i < n && n >= kRun) {  // the last run, without what is added
    add.template operator()<true>(n - kRun, 0, i + kRun - n);
    i = n;
  }
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) {
    Vector<T> vectors[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      vectors[r] = sums[v][r][0];
#pragma GCC unroll 8
      for (int u = 1; u < 2 * U; ++u) vectors[r] += sums[v][r][u];
    }
    T of_rows[whole_vectors<T>(R)];
    sums_of_lanes<T, R>(vectors, of_rows);
    std::copy_n(of_rows, R, totals + v * next_x);
  }
  for (int v = 0; v < V && i < n; ++v) {
    for (int r = 0; r < R; ++r) {
      for (int64_t l = i; l < n; ++l)
        totals[v * next_x + r] +=
            static_cast<T>(rows[r * ld + l]) * static_cast<T>(x[v * ld_x + l]);
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
