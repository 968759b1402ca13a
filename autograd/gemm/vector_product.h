// Products of a matrix with a vector, on one thread: by dot products with the rows of a matrix, or
// by adding its rows up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "autograd/base/dtype.h"
#include "autograd/base/shuffle.h"
#include "autograd/gemm/small_product.h"

namespace ink {
namespace detail {

/// Of a run of two vectors' elements, anywhere in memory, one vector as T: the first or the second
/// half, or of bf16 those with even or odd numbers, because that takes fewer instructions.
template <int half, class T>
Vector<T> half_of_run(const T* x) {
  return load_vector(x + half * kLanes<T>);
}
template <int half, class T>
Vector<float> half_of_run(const bfloat16* x) {
  typedef uint32_t Bits __attribute__((vector_size(kVectorBytes)));
  Bits bits;
  std::memcpy(&bits, x, sizeof bits);  // a type that says it is unaligned is not enough for GCC 11
  return reinterpret_cast<Vector<float>>(half == 0 ? bits << 16 : bits & 0xffff0000);
}

/// The same with zeros in place of the run's first `skipped` elements. J: 0 ... kLanes<T> - 1.
template <int half, class T, class M, int... J>
Vector<T> rest_of_half(const M* x, int64_t skipped, std::integer_sequence<int, J...>) {
  const Vector<T> all = half_of_run<half, T>(x);
  using Numbers = decltype(all < all);
  using Number = std::remove_cvref_t<decltype(Numbers{}[0])>;
  constexpr bool every_second = !std::is_same_v<T, M>;
  constexpr Numbers numbers = {every_second ? 2 * J + half : J + half * kLanes<T>...};
  return numbers < static_cast<Number>(skipped) ? Vector<T>{} : all;
}

/// Each run of B lanes of x and then of y becomes one of B / 2: its first half plus its second.
/// J: 0 ... kLanes<T> - 1.
template <int B, class T, int... J>
Vector<T> add_halves(const Vector<T>& x, const Vector<T>& y, std::integer_sequence<int, J...>) {
  constexpr int half = B / 2;
  return INK_SHUFFLE(x, y, (J / half * B + J % half)...) +
         INK_SHUFFLE(x, y, (J / half * B + J % half + half)...);
}

/// sums[i] = the sum of run i of B lanes, by halves, for all runs of N vectors. It writes whole
/// vectors of sums.
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
  // Adds the products of half a run at `at`, without the run's first `skipped` if it is the last.
  const auto add_half = [&]<int half, bool last>(int64_t at, int u, int64_t skipped) {
    const auto load = [&](const M* from) {
      if constexpr (last)
        return rest_of_half<half, T>(from, skipped, std::make_integer_sequence<int, kLanes<T>>());
      return half_of_run<half, T>(from);
    };
    Vector<T> factors[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) factors[v] = load(x + v * ld_x + at);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const M* here = rows + r * ld + at;
      if constexpr (half == 0 && !last) __builtin_prefetch(here + kAhead);
      const Vector<T> element = load(here);
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) sums[v][r][2 * u + half] += element * factors[v];
    }
  };
  const auto add = [&]<bool last>(int64_t at, int u, int64_t skipped) {
    add_half.template operator()<0, last>(at, u, skipped);
    add_half.template operator()<1, last>(at, u, skipped);
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
