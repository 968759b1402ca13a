// A matrix times a vector reads each element of the matrix once, so memory is what limits it.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/unpacked.h"
#include "autograd/gemm/vector_product.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"

namespace ink::cpu {
namespace {

// sums (batch, rows) = matrix (..., rows, k) times x (..., k, 1), of consecutive elements. The
// inner dimension is summed in parts, and the parts in double.
template <class T, class M>
void multiply(T* sums, const Array& matrix, const Array& x) {
  constexpr int64_t kWorthAThread = 1 << 17;  // elements of the matrix
  const int64_t rows = matrix.size(-2), k = matrix.size(-1), batch = x.numel() / k;
  const bool by_columns = matrix_layout(matrix)->transposed;
  const int64_t ld = matrix_layout(matrix)->ld;
  // Memory is read in long runs, and the sums of a block stay in the L1 cache.
  const int64_t some_rows = 4 * std::clamp<int64_t>(2048 / k, 1, 1024);
  const int64_t block = by_columns ? 4096 : some_rows, longest = by_columns ? 512 : 8192;
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
        add_rows<T>(corner + from * ld + first, ld, factor, n, to, count);
      } else {
        dot_rows(corner + first * ld + from, ld, factor, n, to, count);
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
  return copied(x, dtype);
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
