// The parts of attention's kernels that know neither direction, compiled once for all of them.
#include "autograd/ops/attention/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/gemm/transpose.h"
#include "autograd/loops/strided_loop.h"

namespace ink::tiles {

Array f32_like(const Array& x) { return empty_in_order(x.shape(), by_stride(x), f32, x.device()); }

Array in_f32(const Array& x) {
  if (!x.defined() || x.dtype() != bf16) return x;
  Array y = f32_like(x);
  cpu::copy(y, x);
  return y;
}

template <class T>
void load_lanes(T* to, const Strided<const T>& x, int64_t rows, int64_t cols, T factor) {
  constexpr int64_t kQ = kQueries<T>, n = kLanes<T>;
  for (int64_t r = 0; r < kQ; r += n) {
    int64_t c = 0;
    for (; c + n <= cols && r + n <= rows && x.col == 1; c += n) {
      typedef T Row __attribute__((vector_size(kVectorBytes)));  // aligned
      Row block[n];
      for (int64_t i = 0; i < n; ++i) block[i] = load_vector(x.data + (r + i) * x.row + c);
      transpose_square(block);
      for (int64_t i = 0; i < n; ++i) store_vector(to + (c + i) * kQ + r, factor * block[i]);
    }
    for (; c < cols; ++c) {
      for (int64_t i = r; i < r + n; ++i)
        to[c * kQ + i] = i < rows ? factor * x.data[i * x.row + c * x.col] : T(0);
    }
  }
}

template <class T>
Rows<T> load_rows(T* to, const Strided<const T>& x, int64_t rows, int64_t cols) {
  const int64_t ld = whole_vectors<T>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to[r * ld + c] = x.data[r * x.row + c * x.col];
    std::fill(to + r * ld + cols, to + (r + 1) * ld, T(0));
  }
  return {to, ld};
}

template <class T>
Rows<T> vector_rows(T* memory, const Strided<const T>& x, int64_t rows, int64_t cols) {
  if (x.col == 1 && cols % kLanes<T> == 0) return {x.data, x.row};
  return load_rows(memory, x, rows, cols);
}

template <class T>
bool all_finite(const T* x, int64_t n) {
  constexpr int64_t kAtOnce = 4 * kLanes<T>;  // additions that do not wait for each other
  T zeros[kAtOnce] = {};                      // NaN if they are not
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce)
    for (int64_t k = 0; k < kAtOnce; ++k) zeros[k] += x[i + k] * 0;
  for (; i < n; ++i) zeros[0] += x[i] * 0;
  T zero = 0;
#pragma omp simd reduction(+ : zero)
  for (int64_t k = 0; k < kAtOnce; ++k) zero += zeros[k];
  return zero == 0;
}

template <class T>
Rows<T> finite_rows(T* to, const Strided<const T>& x, int64_t rows, int64_t cols) {
  const Rows<T> copy = load_rows(to, x, rows, cols);
  std::replace_if(
      to, to + rows * copy.ld, [](T v) { return !std::isfinite(static_cast<compute_t<T>>(v)); },
      T(0));
  return copy;
}

template <class T>
void scores(T* s, const Pair<T>& pair, const Strided<const T>& keys, const T* queries, int64_t d) {
  constexpr int64_t kQ = kQueries<T>;
  const int64_t lanes = whole_vectors<T>(pair.rows);
  for (int64_t j = 0; j < pair.n; j += kBlockRows) {
    const int64_t height = std::min<int64_t>(kBlockRows, pair.n - j), lane = pair.first_vector(j);
    small_product(height, d, lanes - lane, keys.from(j, 0), queries + lane, kQ, s + j * kQ + lane,
                  kQ, false);
  }
}

template <class T>
void sum_over_keys(T* sums, int64_t width, const Pair<T>& pair, const T* p, Rows<T> values,
                   bool accumulate) {
  for (int64_t i = 0; i < pair.rows; i += kBlockRows) {
    const int64_t height = std::min<int64_t>(kBlockRows, pair.rows - i);
    small_product(height, pair.seen(i + height - 1), width, {p + i, 1, kQueries<T>}, values.data,
                  values.ld, sums + i * width, width, accumulate);
  }
}

template <class T>
void sum_over_queries(T* sums, int64_t width, const Pair<T>& pair, const T* p, Rows<T> values) {
  constexpr int64_t kQ = kQueries<T>;
  for (int64_t j = 0; j < pair.n; j += kBlockRows) {
    const int64_t height = std::min<int64_t>(kBlockRows, pair.n - j), lane = pair.first_lane(j);
    if (lane >= pair.rows) break;
    small_product(height, pair.rows - lane, width, {p + j * kQ + lane, kQ, 1},
                  values.from(lane).data, values.ld, sums + j * width, width, true);
  }
}

template <class T>
void weights(T* s, const Pair<T>& pair, T* top, T* total, T* shrink) {
  constexpr int64_t kQ = kQueries<T>;
  constexpr T kMasked = -std::numeric_limits<T>::infinity();
  T high[kQ], base[kQ], sums[kQ] = {};
  std::copy(top, top + kQ, high);
  map_scores<T>(pair, s, [&](T x, bool seen, int64_t, int i) {
    const T score = seen ? x : kMasked;
    high[i] = score > high[i] ? score : high[i];
    return score;
  });
  for (int64_t i = 0; i < kQ; ++i) {
    base[i] = high[i] == kMasked ? T(0) : high[i];  // -inf - -inf would be NaN
    shrink[i] = simd::exp(top[i] - base[i]);
    top[i] = high[i];
  }
  map_scores<T>(pair, s, [&](T x, bool, int64_t, int i) {
    const T p = simd::exp_nonpositive(x - base[i]);
    sums[i] += p;
    return p;
  });
  for (int64_t i = 0; i < kQ; ++i) total[i] = total[i] * shrink[i] + sums[i];
}

#define INK_INSTANTIATE(T)                                                              \
  template void load_lanes(T*, const Strided<const T>&, int64_t, int64_t, T);           \
  template Rows<T> vector_rows(T*, const Strided<const T>&, int64_t, int64_t);          \
  template Rows<T> finite_rows(T*, const Strided<const T>&, int64_t, int64_t);          \
  template bool all_finite(const T*, int64_t);                                          \
  template void scores(T*, const Pair<T>&, const Strided<const T>&, const T*, int64_t); \
  template void sum_over_keys(T*, int64_t, const Pair<T>&, const T*, Rows<T>, bool);    \
  template void sum_over_queries(T*, int64_t, const Pair<T>&, const T*, Rows<T>);       \
  template void weights(T*, const Pair<T>&, T*, T*, T*);
INK_INSTANTIATE(float)
INK_INSTANTIATE(double)
#undef INK_INSTANTIATE
template Rows<bfloat16> finite_rows(bfloat16*, const Strided<const bfloat16>&, int64_t, int64_t);

}  // namespace ink::tiles
