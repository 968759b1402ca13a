#include "autograd/gemm/unpacked.h"

#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/small_product.h"
#include "autograd/gemm/vector_product.h"
#include "autograd/kernels/copy.h"

namespace ink {
namespace {

constexpr int64_t kFewRows = 32;  // of the result, for products by columns
constexpr int64_t kFewDots = 6;   // rows of the result, for dot products
constexpr int64_t kLongDot = 32;  // shorter ones take longer than packing
constexpr int64_t kTiny = 64;     // multiplications
constexpr int64_t kSteps = 512;  // of the inner dimension at a time: b's part stays in the L2 cache

// Matrix number `index` of x.
template <class T>
Strided<T> matrix(T* first, const Array& x, int64_t index) {
  const int64_t d = x.dim();
  return {first + batch_offset(x, index), x.strides()[d - 2], x.strides()[d - 1]};
}

// One product, or part of one: c (m, n) = or += a (m, k) b (k, n).
template <class T>
struct Product {
  int64_t m, n, k;
  Strided<T> c;
  Strided<const T> a, b;
  bool accumulate;
};

// Vectors of a row of c at a time. The rows of b and c are contiguous, and no shorter than one. The
// last elements of a row are computed in a buffer if they do not fill a vector.
template <class T>
void by_columns(const Product<T>& p) {
  constexpr int64_t kWidth = kLanes<T>;
  const int64_t rest = p.n % kWidth, whole = p.n - rest;
  T buffer[kFewRows * kWidth];
  for (int64_t step = 0; step < p.k; step += kSteps) {
    const int64_t steps = std::min(kSteps, p.k - step);
    const Strided<const T> a = p.a.from(0, step), b = p.b.from(step, 0);
    small_product(p.m, steps, whole, a, b.data, b.row, p.c.data, p.c.row, p.accumulate || step > 0);
    if (rest > 0)
      small_product(p.m, steps, kWidth, a, b.data + p.n - kWidth, b.row, buffer, kWidth, step > 0);
  }
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < rest; ++j) {
      T& element = p.c.data[i * p.c.row + whole + j];
      const T sum = buffer[i * kWidth + kWidth - rest + j];
      element = p.accumulate ? element + sum : sum;
    }
  }
}

// Any strides. Loops around vectors would take longer than the multiplications. K: the inner
// dimension if it is known at compile time, else 0.
template <int K, class T>
void tiny(const Product<T>& p) {
  const int64_t k = K > 0 ? K : p.k;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      T& element = p.c.data[i * p.c.row + j * p.c.col];
      T sum = p.accumulate ? element : T{0};
      for (int64_t l = 0; l < k; ++l)
        sum += p.a.data[i * p.a.row + l * p.a.col] * p.b.data[l * p.b.row + j * p.b.col];
      element = sum;
    }
  }
}

// Calls f for all products, cut into blocks of so many rows and columns.
template <class T, class F>
void for_blocks(Array& c, const Array& a, const Array& b, bool accumulate, int64_t rows,
                int64_t columns, const F& f) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1), batch = c.numel() / (m * n);
  const int64_t down = (m + rows - 1) / rows, across = (n + columns - 1) / columns;
  const int64_t work = std::min(m, rows) * std::min(n, columns) * k + kTiny * kTiny / 2;
  const T *left = a.data<T>(), *right = b.data<T>();
  T* to = c.mutable_data<T>();
  parallel_for(batch * down * across, kWorthAThread / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t index = item, i = 0, j = 0;
      if (down * across > 1) {  // divisions take as long as a tiny product
        index = item / (down * across);
        i = item % (down * across) / across * rows;
        j = item % across * columns;
      }
      f(Product<T>{std::min(rows, m - i), std::min(columns, n - j), k,
                   matrix(to, c, index).from(i, j), matrix(left, a, index).from(i, 0),
                   matrix(right, b, index).from(0, j), accumulate});
    }
  });
}

// The rows of a and the columns of b are contiguous: each element is a dot product.
template <class T>
void by_dots(Array& c, const Array& a, const Array& b, bool accumulate) {
  constexpr int64_t kColumns = 64;
  const Array rows = a.strides()[a.dim() - 1] == 1 ? a : contiguous(a);
  for_blocks<T>(c, rows, b, accumulate, kFewDots, kColumns, [](const Product<T>& p) {
    T totals[kFewDots * kColumns];
    dot_products(p.b.data, p.b.col, p.n, p.a.data, p.a.row, p.m, p.k, totals, kColumns);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        T& element = p.c.data[i * p.c.row + j * p.c.col];
        const T total = totals[i * kColumns + j];
        element = p.accumulate ? element + total : total;
      }
    }
  });
}

// How a product is computed, if not by a unit.
enum class Way { none, tiny, columns, dots };

template <class T>
Way way_of(const Array& c, const Array& a, const Array& b) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1), d = c.dim();
  if (m * n * k <= kTiny) return Way::tiny;
  const bool whole_rows = c.strides()[d - 1] == 1 && b.strides()[d - 1] == 1;
  if (m <= kFewRows && n >= kLanes<T> && whole_rows) return Way::columns;
  return m <= kFewDots && k >= kLongDot && b.strides()[d - 2] == 1 ? Way::dots : Way::none;
}

template <class T>
bool product(Array& c, const Array& a, const Array& b, bool accumulate, const Array& bias) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  const Way way = way_of<T>(c, a, b);
  if (way == Way::none) return false;
  if (bias.defined()) kernel::copy(c, bias.expanded(c.shape()));
  const bool starts = accumulate || bias.defined();
  if (way == Way::tiny) {
    for_blocks<T>(c, a, b, starts, m, n, k == 2 ? tiny<2, T> : tiny<0, T>);
  } else if (way == Way::columns) {
    for_blocks<T>(c, a, b, starts, kFewRows, kBlockVectors * kLanes<T>, by_columns<T>);
  } else {
    by_dots<T>(c, a, b, starts);
  }
  return true;
}

}  // namespace

bool unpacked_product(Array& c, const Array& a, const Array& b, bool accumulate,
                      const Array& bias) {
  const DType dtype = c.dtype();
  if (a.dtype() != dtype || b.dtype() != dtype || a.size(-1) == 0) return false;
  if (dtype == f64) return product<double>(c, a, b, accumulate, bias);
  return dtype == f32 && product<float>(c, a, b, accumulate, bias);
}

}  // namespace ink
