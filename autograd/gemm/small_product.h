// Products of matrices that fit in a cache, on one thread, for tiled kernels. A block of the result
// stays in registers during the loop over the inner dimension.
#pragma once

#include <cstdint>

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

/// c = a b, or c += a b, for a (rows, inner) of any strides, b (inner, width) and c (rows, width)
/// with consecutive elements in their rows. width: a multiple of kLanes<T>. T: float, double or
/// int64_t.
template <class T>
void small_product(int64_t rows, int64_t inner, int64_t width, const Strided<const T>& a,
                   const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate);

}  // namespace ink
