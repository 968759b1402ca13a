// Products of matrices that fit in a cache, on one thread, for tiled kernels. A block of the result
// stays in registers during the loop over the inner dimension.
#pragma once

#include <cstdint>
#include <utility>

#include "autograd/base/shuffle.h"

namespace ink {

// The processor's vectors. The compiler keeps wider ones in memory.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kBlockVectors = 4;  // 32 registers
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kBlockVectors = 2;  // 16 registers
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kBlockVectors = 4;  // 32 registers
#else
inline constexpr int kVectorBytes = 16, kBlockVectors = 2;  // 16 registers
#endif
inline constexpr int kBlockRows = 6, kNarrowRows = 8;  // narrow: of up to half the vectors

/// Elements of T in a vector register.
template <class T>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

/// n rounded up to whole vectors of T.
template <class T>
constexpr int64_t whole_vectors(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
/// kLanes<T> elements anywhere in memory.
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
Vector<T> load_vector(const T* p) {
  return *reinterpret_cast<const Vector<T>*>(p);
}
template <class T>
void store_vector(T* p, Vector<T> v) {
  *reinterpret_cast<Vector<T>*>(p) = v;
}

/// A matrix whose element (i, j) is data[i * row + j * col].
template <class T>
struct Strided {
  T* data;
  int64_t row, col;

  Strided from(int64_t i, int64_t j) const { return {data + i * row + j * col, row, col}; }
};

namespace detail {

/// Exchanges the elements (i, j + S) and (i + S, j) of a square block, for i and j without bit S.
/// J: 0 ... kLanes<T> - 1.
template <class T, int S, int... J>
[[gnu::always_inline]] inline void exchange(Vector<T>* rows, std::integer_sequence<int, J...>) {
  constexpr int n = sizeof...(J);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if (i & S) continue;
    const Vector<T> a = rows[i], b = rows[i + S];
    rows[i] = INK_SHUFFLE(a, b, (J & S ? n + J - S : J)...);
    rows[i + S] = INK_SHUFFLE(a, b, (J & S ? n + J : J + S)...);
  }
}

}  // namespace detail

/// Transposes a square block of kLanes<T> rows, by halves, quarters and so on.
template <class T>
[[gnu::always_inline]] inline void transpose_block(Vector<T>* rows) {
  constexpr auto lanes = std::make_integer_sequence<int, kLanes<T>>{};
  if constexpr (kLanes<T> >= 16) detail::exchange<T, 8>(rows, lanes);
  if constexpr (kLanes<T> >= 8) detail::exchange<T, 4>(rows, lanes);
  if constexpr (kLanes<T> >= 4) detail::exchange<T, 2>(rows, lanes);
  detail::exchange<T, 1>(rows, lanes);
}

/// c = a b, or c += a b, for a (rows, inner) of any strides, b (inner, width) and c (rows, width)
/// with consecutive elements in their rows. width: a multiple of kLanes<T>. T: float, double or
/// int64_t.
template <class T>
void small_product(int64_t rows, int64_t inner, int64_t width, Strided<const T> a, const T* b,
                   int64_t ldb, T* c, int64_t ldc, bool accumulate);

}  // namespace ink
