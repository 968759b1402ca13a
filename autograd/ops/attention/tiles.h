// The parts of attention's kernels (attention.cpp).
//
// A tile of queries is combined with one tile of keys after the other. Only the scores of one pair
// of tiles exist at a time, and they are transposed: s[j][i] belongs to key j and query i. So each
// query has a vector lane of its own, and maxima and sums over keys need no shuffles. Under the
// causal mask the products skip what no query of a tile may see, in steps of a few rows or one
// vector. Other masks and dropout are tiles of their own (attention/mask.h).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <type_traits>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/small_product.h"
#include "autograd/kernels/attention.h"
#include "autograd/kernels/copy.h"
#include "autograd/loops/simd.h"

namespace ink::tiles {

template <class T>
inline constexpr int64_t kQueries = (kVectorBytes >= 32 ? 4 : 8) * kLanes<T>;  // of a tile
inline constexpr int64_t kKeys = 192;                                          // of a tile

/// The problem's sizes. `heads` is the product of the queries' leading dimensions; each `group`
/// consecutive heads share a head of keys and values.
struct Sizes {
  int64_t heads, group, queries, keys, d, dv;
  int64_t diagonal, window;  // query i sees keys first_seen(i) .. i + diagonal

  Sizes(const Array& q, const Array& k, const Array& v, const AttentionRule& rule)
      : heads(matrices(q)),
        group(heads > 0 ? heads / matrices(k) : 1),
        queries(q.size(-2)),
        keys(k.size(-2)),
        d(q.size(-1)),
        dv(v.size(-1)),
        diagonal(rule.diagonal),
        window(rule.window) {}
  /// How many keys the queries before `end` see.
  int64_t seen(int64_t end) const { return std::clamp<int64_t>(end + diagonal, 0, keys); }
  int64_t first_seen(int64_t i) const {
    return window > 0 ? std::clamp<int64_t>(i + diagonal + 1 - window, 0, keys) : 0;
  }

 private:
  static int64_t matrices(const Array& x) {
    Shape leading = x.shape();
    leading[x.dim() - 1] = leading[x.dim() - 2] = 1;
    return leading.numel();
  }
};

/// A pair of tiles, and which of its queries see which keys.
template <class T>
struct Pair {
  int64_t i0, j0;   // first query, first key
  int64_t rows, n;  // numbers of queries and of keys
  int64_t diagonal;

  /// The lane whose query's last key is j0 + j; it may lie outside.
  int64_t lane_of(int64_t j) const { return j0 + j - i0 - diagonal; }
  /// The first lane that sees key j0 + j.
  int64_t first_lane(int64_t j) const { return std::clamp<int64_t>(lane_of(j), 0, kQueries<T>); }
  int64_t first_vector(int64_t j) const { return first_lane(j) / kLanes<T> * kLanes<T>; }
  /// How many of the keys lane i sees.
  int64_t seen(int64_t i) const { return std::clamp<int64_t>(i0 + i + diagonal + 1 - j0, 0, n); }
};

/// Scratch memory.
template <class T>
struct Buffer {
  Array memory;
  T* data;

  explicit Buffer(int64_t n)
      : memory(Array::empty({n}, dtype_of<T>(), cpu_device)), data(memory.mutable_data<T>()) {}
  operator T*() const { return data; }
};

/// Uninitialised f32s of x's shape, in the order in which x lies in memory: heads inside a packed
/// (B, T, 3C) stay beside each other, and are converted in long runs.
Array f32_like(const Array& x);
/// bf16 is computed in f32.
Array in_f32(const Array& x);

/// How many threads share n items: as many as have something to do.
inline int64_t sharers(int64_t n, const Sizes& size) {
  constexpr int64_t kWorthAThread = 16 * kGrain;  // multiplications
  const int64_t work = size.heads * size.queries * size.keys * (size.d + size.dv);
  return std::min({n, max_threads(), 1 + work / kWorthAThread});
}

/// Scratch memory for the threads that share n items. It is allocated before they start, so that
/// the peak of memory does not depend on which threads run at the same time.
template <class Scratch, class... Args>
std::vector<Scratch> scratch_for(int64_t n, const Sizes& size, const Args&... args) {
  std::vector<Scratch> scratch;
  while (std::ssize(scratch) < sharers(n, size)) scratch.emplace_back(size, args...);
  return scratch;
}

/// Calls f(item, scratch) for every item below n, in parallel.
template <class Scratch, class F>
void for_each_item(int64_t n, const std::vector<Scratch>& scratch, const F& f) {
  const auto parts = static_cast<int64_t>(scratch.size());
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t item = n * part / parts; item < n * (part + 1) / parts; ++item)
        f(item, scratch[static_cast<size_t>(part)]);
    }
  });
}

/// The matrices of a tensor (..., rows, cols), one for each head. E: T, or const T to read only.
template <class E>
struct Heads {
  const Array& tensor;
  E* data;

  explicit Heads(const Array& x) : tensor(x), data(x.data<std::remove_const_t<E>>()) {}
  explicit Heads(Array& x) : tensor(x), data(x.mutable_data<E>()) {}
  Strided<E> operator[](int64_t head) const {
    const int64_t d = tensor.dim();
    return {data + batch_offset(tensor, head), tensor.strides()[d - 2], tensor.strides()[d - 1]};
  }
};

/// to(i, c) = factor(i) from[i * ld + c].
template <class T, class F>
void store_rows(Strided<T> to, int64_t rows, int64_t cols, const T* from, int64_t ld, F&& factor) {
  for (int64_t i = 0; i < rows; ++i) {
    T* out = to.data + i * to.row;
    const T* in = from + i * ld;
    const T f = factor(i);
    if (to.col == 1) {
      for (int64_t c = 0; c < cols; ++c) out[c] = in[c] * f;
    } else {
      for (int64_t c = 0; c < cols; ++c) out[c * to.col] = in[c] * f;
    }
  }
}

/// to[c][r] = factor x(r, c), zero in lanes past the last row.
template <class T>
void load_lanes(T* to, const Strided<const T>& x, int64_t rows, int64_t cols, T factor);

/// Contiguous rows, padded with zeros to whole vectors.
template <class T>
struct Rows {
  const T* data;
  int64_t ld;

  Rows from(int64_t i) const { return {data + i * ld, ld}; }
};

/// x's rows in place, if they can be read by whole vectors; otherwise copied to `memory`.
template <class T>
Rows<T> vector_rows(T* memory, const Strided<const T>& x, int64_t rows, int64_t cols);

// A hidden weight is 0, and 0 times NaN would reach the sum of a query that must not see it.
// Kernels do not ask beforehand. If a sum is not finite, they compute it again *with care*: with
// zeros for the elements that are not finite, which are then added to the sums of those who see
// them.

/// Are n numbers finite?
template <class T>
bool all_finite(const T* x, int64_t n);

/// A copy of x's rows with zeros for what is not finite, padded like those of vector_rows.
template <class T>
Rows<T> finite_rows(T* to, const Strided<const T>& x, int64_t rows, int64_t cols);

/// sums(o, c) += p(o, r) x(r, c) for what is not finite in x (rows, cols), if `o` sees row r.
template <class C, class P, class X, class Sees>
void add_not_finite(C* sums, int64_t ld, int64_t outputs, const Strided<const P>& p,
                    const Strided<const X>& x, int64_t rows, int64_t cols, Sees&& sees) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const C value = static_cast<C>(x.data[r * x.row + c * x.col]);
      for (int64_t o = 0; o < outputs && !std::isfinite(value); ++o)
        if (sees(o, r)) sums[o * ld + c] += static_cast<C>(p.data[o * p.row + r * p.col]) * value;
    }
  }
}

/// s[j][i] = keys(j) . queries(i) for the lanes i that see key j, and for a few others.
template <class T>
void scores(T* s, const Pair<T>& pair, const Strided<const T>& keys, const T* queries, int64_t d);

/// sums[i] (+)= sum of p[j][i] values(j) over the keys that query i sees. Rows of `width` elements.
template <class T>
void sum_over_keys(T* sums, int64_t width, const Pair<T>& pair, const T* p, Rows<T> values,
                   bool accumulate);

/// sums[j] += sum of p[j][i] values(i) over the queries that see key j.
template <class T>
void sum_over_queries(T* sums, int64_t width, const Pair<T>& pair, const T* p, Rows<T> values);

/// 0, 1, 2, ...: lane numbers as data. If code compared the loop index, the compiler would split
/// the loops.
template <class T>
inline constexpr auto kLaneNumbers = [] {
  std::array<T, kQueries<T>> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<T>(i);
  return numbers;
}();

/// map_scores for tiles whose queries lie in the first `kEnd` lanes.
template <class T, int kEnd, class F>
void map_lanes(const Pair<T>& pair, T* s, F& f) {
  constexpr int n = kLanes<T>, kQ = kQueries<T>;
  constexpr int kBefore = whole_vectors<T>(kBlockRows - 1);  // sums take so many rows at a time
  for (int64_t j = 0; j < pair.n; ++j) {
    T* row = s + j * kQ;
    const int first = static_cast<int>(pair.first_lane(j)), vector = first / n * n;
    if (first == 0) {
#pragma omp simd
      for (int i = 0; i < kEnd; ++i) row[i] = f(row[i], true, j, i);
      continue;
    }
    const T bound = static_cast<T>(first);
    for (int v = vector; v < kEnd; v += n) {
#pragma omp simd
      for (int i = v; i < v + n; ++i) row[i] = f(row[i], kLaneNumbers<T>[i] >= bound, j, i);
    }
    for (int v = std::max(0, vector - kBefore); v < vector; v += n)
      store_vector(row + v, Vector<T>{});
  }
}

/// s[j][i] = f(s[j][i], does query i see key j, j, i) in vectors that see key j; 0 in others, as
/// far as sum_over_keys and sum_over_queries read them.
template <class T, class F>
void map_scores(const Pair<T>& pair, T* s, F&& f) {
  constexpr int n = kLanes<T>, kQ = kQueries<T>;
  pair.rows <= n ? map_lanes<T, n>(pair, s, f) : map_lanes<T, kQ>(pair, s, f);
}

/// Scores to weights, in place:
///   p[j][i] = exp(s[j][i] - top[i]), 0 where query i does not see key j
///   top      the largest scores so far
///   total    the sums of weights so far
///   shrink   the factor for sums over earlier tiles
template <class T>
void weights(T* s, const Pair<T>& pair, T* top, T* total, T* shrink);

}  // namespace ink::tiles
