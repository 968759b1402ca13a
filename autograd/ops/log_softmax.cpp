// log_softmax over one dimension.
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"

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
  if (x.numel() == 0) return x;                            // amax needs an element
  const Tensor shifted = x - amax(x.detach(), {d}, true);  // y does not depend on the shift
  return shifted - log(sum(exp(shifted), {d}, true));
}

Tensor log_softmax(const Tensor& input, int64_t dim) {
  check_defined("log_softmax", input);
  const int64_t d = wrap_dim("log_softmax", dim, input.shape());
  INK_CHECK(input.is_floating(), "log_softmax: expected a floating dtype, got ", input.dtype());
  if (input.dim() == 0) return shown_as("log_softmax", log_softmax(input.view({1})).view({}));
  if (composed()) return log_softmax_composed(input, d);
  const bool last = d == input.dim() - 1, cpu = input.device().is_cpu();
  const bool rows = last && (input.size(d) >= kLongEnoughRow || !cpu);  // by the kernel
  if (!last && !cpu)
    return shown_as("log_softmax",
                    log_softmax(input.transpose(d, -1)).transpose(d, -1).contiguous());
  const Tensor x = input.contiguous();
  const DType dtype = x.dtype(), sums = dtype == bf16 ? f32 : dtype;
  Tensor y = empty_like(x);
  if (rows) {
    kernel::log_softmax(y, x);
  } else if (x.numel() > 0) {  // basic ops compute all lines side by side
    const NoGrad no_grad;
    Tensor shifted = to(x, sums) - amax(to(x, sums), {d}, true);
    y = to(shifted.sub_(log(sum(exp(shifted), {d}, true))), dtype);
  }
  return record("log_softmax", {x}, y, [=, y = Saved::output(y)](const Tensor& dy) -> Grads {
    if (grad_enabled() || !rows) {  // grad_enabled: to be differentiated
      const Tensor g = to(dy, sums);
      return {to(g - exp(to(*y, sums)) * sum(g, {d}, true), dtype)};
    }
    Tensor dx = empty_like(dy);
    kernel::log_softmax_backward(dx, dy.contiguous(), *y);
    return {dx};
  });
}

}  // namespace ink
