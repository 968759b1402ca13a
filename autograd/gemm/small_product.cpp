#include "autograd/gemm/small_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace ink {
namespace {

template <class T>
constexpr T kZeros[kBlockVectors * kLanes<T>] = {};

/// R rows and V vectors of c (+)= a b.
template <class T, int R, int V>
void product_block(int64_t inner, const Strided<const T>& a, const T* b, int64_t ldb, T* c,
                   int64_t ldc, bool accumulate) {
  // Beside a branch, the compiler would keep the sums in memory.
  const T* const start = accumulate ? c : kZeros<T>;
  const int64_t next = accumulate ? ldc : 0;
  Vector<T> sums[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v] = load_vector(start + r * next + v * kLanes<T>);
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
using ProductBlock = void (*)(int64_t, const Strided<const T>&, const T*, int64_t, T*, int64_t,
                              bool);

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

}  // namespace

template <class T>
void small_product(int64_t rows, int64_t inner, int64_t width, const Strided<const T>& a,
                   const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  for (int64_t j = 0; j < width; j += kBlockVectors * kLanes<T>) {
    const int64_t vectors = std::min<int64_t>(kBlockVectors, (width - j) / kLanes<T>);
    const int64_t most = block_rows(vectors);
    for (int64_t i = 0; i < rows; i += most) {
      const int64_t height = std::min(most, rows - i);
      const auto at = static_cast<size_t>((height - 1) * kBlockVectors + vectors - 1);
      kProductBlocks<T>[at](inner, a.from(i, 0), b + j, ldb, c + i * ldc + j, ldc, accumulate);
    }
  }
}

#define INK_INSTANTIATE(T)                                                                     \
  template void small_product<T>(int64_t, int64_t, int64_t, const Strided<const T>&, const T*, \
                                 int64_t, T*, int64_t, bool);
INK_INSTANTIATE(float)
INK_INSTANTIATE(double)
INK_INSTANTIATE(int64_t)
#undef INK_INSTANTIATE

}  // namespace ink
