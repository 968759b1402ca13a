// Products of matrices that fit in a cache, on one thread, for tiled kernels. A block of the result
// stays in registers during the loop over the inner dimension.
#pragma once

#include <algorithm>
#include <array>
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

/// R rows and V vectors of c (+)= a b.
template <class T, int R, int V>
void product_block(int64_t inner, Strided<const T> a, const T* b, int64_t ldb, T* c, int64_t ldc,
                   bool accumulate) {
  Vector<T> sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v)
      sums[r][v] = accumulate ? load_vector(c + r * ldc + v * kLanes<T>) : Vector<T>{};
  }
  for (int64_t k = 0; k < inner; ++k) {
    Vector<T> row[V];
    for (int v = 0; v < V; ++v) row[v] = load_vector(b + k * ldb + v * kLanes<T>);
    for (int r = 0; r < R; ++r) {
      const T factor = a.data[r * a.row + k * a.col];
      for (int v = 0; v < V; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store_vector(c + r * ldc + v * kLanes<T>, sums[r][v]);
  }
}

template <class T>
using ProductBlock = void (*)(int64_t, Strided<const T>, const T*, int64_t, T*, int64_t, bool);

/// The rows of a block of so many vectors.
constexpr int block_rows(int64_t vectors) {
  return 2 * vectors <= kBlockVectors ? kNarrowRows : kBlockRows;
}
/// product_block<T, r + 1, v + 1> for all block sizes, at r * kBlockVectors + v.
template <class T>
inline constexpr auto kProductBlocks = []<size_t... I>(std::index_sequence<I...>) {
  const auto block = []<int r, int v>() -> ProductBlock<T> {
    if constexpr (r <= block_rows(v)) return &product_block<T, r, v>;
    return nullptr;
  };
  return std::array<ProductBlock<T>, sizeof...(I)>{
      block.template operator()<I / kBlockVectors + 1, I % kBlockVectors + 1>()...};
}
(std::make_index_sequence<kNarrowRows * kBlockVectors>{});

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
/// with consecutive elements in their rows. width: a multiple of kLanes<T>.
template <class T>
void small_product(int64_t rows, int64_t inner, int64_t width, Strided<const T> a, const T* b,
                   int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  for (int64_t j = 0; j < width; j += kBlockVectors * kLanes<T>) {
    const int64_t vectors = std::min<int64_t>(kBlockVectors, (width - j) / kLanes<T>);
    const int64_t most = detail::block_rows(vectors);
    for (int64_t i = 0; i < rows; i += most) {
      const int64_t height = std::min(most, rows - i);
      const auto at = static_cast<size_t>((height - 1) * kBlockVectors + vectors - 1);
      detail::kProductBlocks<T>[at](inner, a.from(i, 0), b + j, ldb, c + i * ldc + j, ldc,
                                    accumulate);
    }
  }
}

}  // namespace ink
