// log_softmax over one dimension.
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/over_dim.h"

namespace ink {

namespace cpu {

void log_softmax(Array& y, const Array& x) {
  const auto row = []<class T>(int64_t n, T* b, const T* a) {
    using C = compute_t<T>;
    const C top = max_of<C>(n, [&](int64_t i) { return static_cast<C>(a[i]); });
    const C total =
        sum_of<C>(n, [&](int64_t i) { return simd::exp_nonpositive(static_cast<C>(a[i]) - top); });
    const C log_total = simd::log(total);
    for (int64_t i = 0; i < n; ++i) b[i] = static_cast<T>(static_cast<C>(a[i]) - top - log_total);
  };
  map_rows("log_softmax", row, y, x);
}

void log_softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class T>(int64_t n, T* d, const T* g, const T* a) {
    using C = compute_t<T>;
    const C total = sum_of<C>(n, [&](int64_t i) { return static_cast<C>(g[i]); });
    for (int64_t i = 0; i < n; ++i)
      d[i] = static_cast<T>(static_cast<C>(g[i]) -
                            simd::exp_nonpositive(static_cast<C>(a[i])) * total);
  };
  map_rows("log_softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

static Tensor log_softmax_composed(const Tensor& x, int64_t d) {
  const Tensor shifted = x - amax(x.detach(), {d}, true);  // y does not depend on the shift
  return shifted - log(sum(exp(shifted), {d}, true));
}

Tensor log_softmax(const Tensor& input, int64_t dim) {
  return over_dim("log_softmax", input, dim, log_softmax_composed, [](const Tensor& x) {
    Tensor y = empty(x.shape(), x.options());
    kernel::log_softmax(y, contiguous(x));
    return record("log_softmax", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
      if (grad_enabled()) return {dy - exp(*y) * sum(dy, {-1}, true)};  // to be differentiated
      Tensor dx = empty_like(dy);
      kernel::log_softmax_backward(dx, contiguous(dy), *y);
      return {dx};
    });
  });
}

}  // namespace ink
