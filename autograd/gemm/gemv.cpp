// A matrix times a vector reads each element of the matrix once, so memory is what limits it. A
// matrix whose rows lie in memory one after the other is multiplied by dot products, four rows at a
// time. One whose columns do is multiplied by adding columns to the result, four at a time.
#include "autograd/gemm/gemv.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/small_product.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"

namespace ink::cpu {
namespace {

// Two vectors' worth of elements as T, from anywhere in memory: halves of a run, or of bf16 those
// with even and those with odd numbers, because that takes fewer instructions.
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

// The dot products of R rows, ld apart, with x; U pairs of vectors of each are summed separately.
template <int R, int U, class T, class M>
void dot_rows(const M* rows, int64_t ld, const M* x, int64_t n, T* totals) {
  constexpr int64_t kRun = 2 * kLanes<T>;
  Vector<T> sums[R][2 * U] = {};
  int64_t i = 0;
  for (; i + U * kRun <= n; i += U * kRun) {
    for (int u = 0; u < U; ++u) {
      const Pair<T, M> factor(x + i + u * kRun);
      for (int r = 0; r < R; ++r) {
        const Pair<T, M> element(rows + r * ld + i + u * kRun);
        sums[r][2 * u] += element.first * factor.first;
        sums[r][2 * u + 1] += element.second * factor.second;
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    Vector<T> sum = sums[r][0];
    for (int u = 1; u < 2 * U; ++u) sum += sums[r][u];
    T total = 0;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) total += sum[lane];
    for (int64_t l = i; l < n; ++l)
      total += static_cast<T>(rows[r * ld + l]) * static_cast<T>(x[l]);
    totals[r] = total;
  }
}

// sums[j] = the products of n columns, ld apart, with x.
template <class T, class M>
void add_columns(const M* columns, int64_t ld, const M* x, int64_t k, T* sums, int64_t n) {
  std::fill_n(sums, n, T{0});
  int64_t l = 0;
  for (; l + 4 <= k; l += 4) {
    const M *m0 = columns + l * ld, *m1 = m0 + ld, *m2 = m1 + ld, *m3 = m2 + ld;
    const T x0 = static_cast<T>(x[l]), x1 = static_cast<T>(x[l + 1]), x2 = static_cast<T>(x[l + 2]),
            x3 = static_cast<T>(x[l + 3]);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j)
      sums[j] += x0 * static_cast<T>(m0[j]) + x1 * static_cast<T>(m1[j]) +
                 (x2 * static_cast<T>(m2[j]) + x3 * static_cast<T>(m3[j]));
  }
  for (; l < k; ++l) {
    for (int64_t j = 0; j < n; ++j)
      sums[j] += static_cast<T>(x[l]) * static_cast<T>(columns[l * ld + j]);
  }
}

// sums (batch, rows) = matrix (..., rows, k) times x (..., k, 1), of consecutive elements. The
// inner dimension is summed in parts, and the parts in double.
template <class T, class M>
void multiply(T* sums, const Array& matrix, const Array& x) {
  constexpr int64_t kWorthAThread = 1 << 17;  // elements of the matrix
  const int64_t rows = matrix.size(-2), k = matrix.size(-1), batch = x.numel() / k;
  const auto [by_columns, ld] = *matrix_layout(matrix);
  // Memory is read in long runs, and the sums of a block stay in the L1 cache.
  const int64_t block = by_columns ? 4096 : 4, longest = by_columns ? 512 : 8192;
  const int64_t blocks = (rows + block - 1) / block, parts = (k + longest - 1) / longest;
  std::vector<T> partial(static_cast<size_t>(parts > 1 ? parts * batch * rows : 0));
  const M* elements = matrix.data<M>();
  const M* factors = x.data<M>();
  const int64_t grain = kWorthAThread / (std::min(rows, block) * std::min(k, longest)) + 1;
  parallel_for(batch * blocks * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts, first = item / parts % blocks * block,
                    index = item / parts / blocks, from = part * longest;
      const int64_t n = std::min(longest, k - from), count = std::min(block, rows - first);
      const M* factor = factors + batch_offset(x, index) + from;
      const M* corner = elements + batch_offset(matrix, index);
      T* to = (parts > 1 ? partial.data() + part * batch * rows : sums) + index * rows + first;
      if (by_columns) {
        add_columns<T>(corner + from * ld + first, ld, factor, n, to, count);
      } else if (count == block) {
        dot_rows<4, 1>(corner + first * ld + from, ld, factor, n, to);
      } else {
        for (int64_t r = 0; r < count; ++r)
          dot_rows<1, 4>(corner + (first + r) * ld + from, ld, factor, n, to + r);
      }
    }
  });
  for (int64_t i = 0; i < batch * rows && parts > 1; ++i) {
    double total = 0;
    for (int64_t part = 0; part < parts; ++part)
      total += static_cast<double>(partial[static_cast<size_t>(part * batch * rows + i)]);
    sums[i] = static_cast<T>(total);
  }
}

// x in the dtype, with consecutive elements.
Array as_vector(const Array& x, DType dtype) {
  if (x.dtype() == dtype && x.strides()[x.dim() - 2] == 1) return x;
  Array copied = Array::empty(x.shape(), dtype, x.device());
  copy(copied, x);
  return copied;
}

// sums (..., rows, 1), contiguous = a (..., rows, k) b (..., k, 1)
void multiply_columns(Array& sums, const Array& a, const Array& b) {
  const Array matrix = as_gemm_operand(a, a.dtype()), x = as_vector(b, a.dtype());
  if (a.dtype() == f64) return multiply<double, double>(sums.mutable_data<double>(), matrix, x);
  float* to = sums.mutable_data<float>();
  a.dtype() == bf16 ? multiply<float, bfloat16>(to, matrix, x)
                    : multiply<float, float>(to, matrix, x);
}

}  // namespace

void vector_products(Array& c, const Array& a, const Array& b, const Array& start) {
  const DType dtype = c.dtype() == f64 ? f64 : f32;
  const bool in_place = c.dtype() == dtype && c.is_contiguous() && !start.defined();
  Array sums = in_place ? c : Array::empty(c.shape(), dtype, c.device());
  if (a.size(-1) == 0) {
    fill(sums, 0);
  } else if (c.size(-1) == 1) {
    multiply_columns(sums, a, b);
  } else {  // as contiguous as its transpose, which has one column
    Array column = sums.transposed();
    multiply_columns(column, b.transposed(), a.transposed());
  }
  if (start.defined()) binary(sums, sums, start, BinaryOp::add);
  if (!in_place) copy(c, sums);
}

}  // namespace ink::cpu
