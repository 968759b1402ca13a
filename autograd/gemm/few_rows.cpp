#include "autograd/gemm/few_rows.h"

#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/gemm/small_product.h"
#include "autograd/kernels/copy.h"

namespace ink {
namespace {

constexpr int64_t kFewRows = 32;
constexpr int64_t kSteps = 512;  // of the inner dimension at a time: b's part stays in the L2 cache

template <class T>
bool product(Array& c, const Array& a, const Array& b, bool accumulate, const Array& bias) {
  constexpr int64_t kWidth = kBlockVectors * kLanes<T>;
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1), d = c.dim();
  const int64_t ld_b = b.strides()[d - 2], ld_c = c.strides()[d - 2];
  if (m > kFewRows || n % kLanes<T> != 0 || b.strides()[d - 1] != 1 || c.strides()[d - 1] != 1)
    return false;
  if (bias.defined()) kernel::copy(c, bias.expanded(c.shape()));
  const bool starts = accumulate || bias.defined();
  const int64_t columns = (n + kWidth - 1) / kWidth, batch = c.numel() / (m * n);
  const T *left = a.data<T>(), *right = b.data<T>();
  T* to = c.mutable_data<T>();
  const auto multiply = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t index = columns == 1 ? item : item / columns;
      const int64_t j = (item - index * columns) * kWidth, width = std::min(kWidth, n - j);
      const Strided<const T> x{left + batch_offset(a, index), a.strides()[d - 2],
                               a.strides()[d - 1]};
      const T* y = right + batch_offset(b, index) + j;
      T* result = to + batch_offset(c, index) + j;
      for (int64_t step = 0; step < k; step += kSteps)
        small_product(m, std::min(kSteps, k - step), width, x.from(0, step), y + step * ld_b, ld_b,
                      result, ld_c, starts || step > 0);
    }
  };
  parallel_for(batch * columns, kWorthAThread / (m * std::min(kWidth, n) * k) + 1, multiply);
  return true;
}

}  // namespace

bool few_rows_product(Array& c, const Array& a, const Array& b, bool accumulate,
                      const Array& bias) {
  if (a.dtype() != c.dtype() || b.dtype() != c.dtype()) return false;
  if (c.dtype() == f64) return product<double>(c, a, b, accumulate, bias);
  return c.dtype() == f32 && product<float>(c, a, b, accumulate, bias);
}

}  // namespace ink
