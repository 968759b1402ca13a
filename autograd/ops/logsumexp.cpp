// logsumexp over dimensions.
//   y  = log sum exp x
//   dx = dy exp(x - y)
// y is computed as m + log sum exp(x - m) with m = max x, so that nothing overflows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/promote.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {
namespace {

// Each element of y is that of n elements of x, one after the other.
void logsumexp_rows(Array& y, const Array& x, int64_t n) {
  for_float("logsumexp", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    for_each_row(y.numel(), n, [=](int64_t row) {
      const auto at = [p = in + row * n](int64_t i) { return static_cast<C>(p[i]); };
      constexpr C kMax = std::numeric_limits<C>::max();  // inf - inf would be NaN
      const C m = std::clamp(max_of<C>(n, at), -kMax, kMax);
      const C sum = sum_of<C>(n, [=](int64_t i) { return simd::exp(at(i) - m); });
      out[row] = static_cast<T>(m + std::log(sum));
    });
  });
}

Tensor logsumexp_composed(const Tensor& x, const ReducedShape& shape) {
  const NoGrad no_grad;
  if (x.numel() == 0) return full(shape.kept, -INFINITY, x.options());  // log 0
  const Tensor top = amax(x, shape.dims, true);
  const Tensor m = masked_fill(top, abs(top) == INFINITY, 0);
  return m + log(sum(exp(x - m), shape.dims, true));
}

}  // namespace

Tensor logsumexp(const Tensor& input, const Shape& dims, bool keepdim) {
  const Tensor x = floating("logsumexp", input);
  const ReducedShape shape("logsumexp", x, dims);
  Tensor y;
  if (x.device().is_cpu() && !composed()) {
    const NoGrad no_grad;
    y = empty(shape.kept, x.options());
    logsumexp_rows(y, permute(x, shape.reduced_last()).contiguous(), shape.count);
  } else {
    y = logsumexp_composed(x, shape);
  }
  y = shape.finish(y, keepdim);
  return record("logsumexp", {x}, y,
                [shape, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
                  return {shape.keep(dy) * exp(*x - shape.keep(*y))};
                });
}

}  // namespace ink
