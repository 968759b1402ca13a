// softmax over one dimension.                             (the op to copy when you add a fused one)
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"

namespace ink {

namespace cpu {

void softmax(Array& y, const Array& x) {
  const auto row = []<class T>(int64_t n, T* b, const T* a) {
    using C = compute_t<T>;
    const C top = max_of<C>(n, [&](int64_t i) { return static_cast<C>(a[i]); });
    const auto e = [&](int64_t i) { return simd::exp_nonpositive(static_cast<C>(a[i]) - top); };
    if constexpr (std::is_same_v<T, C>) {
      for (int64_t i = 0; i < n; ++i) b[i] = e(i);
      const C scale = 1 / sum_of<C>(n, [&](int64_t i) { return b[i]; });
      for (int64_t i = 0; i < n; ++i) b[i] *= scale;
    } else {  // b would round e
      const C scale = 1 / sum_of<C>(n, e);
      for (int64_t i = 0; i < n; ++i) b[i] = static_cast<T>(e(i) * scale);
    }
  };
  map_rows("softmax", row, y, x);
}

void softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class T>(int64_t n, T* d, const T* g, const T* a) {
    using C = compute_t<T>;
    const C dot =
        sum_of<C>(n, [&](int64_t i) { return static_cast<C>(g[i]) * static_cast<C>(a[i]); });
    for (int64_t i = 0; i < n; ++i)
      d[i] = static_cast<T>(static_cast<C>(a[i]) * (static_cast<C>(g[i]) - dot));
  };
  map_rows("softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

static Tensor softmax_composed(const Tensor& x, int64_t d) {
  if (x.numel() == 0) return x;                           // amax needs an element
  const Tensor e = exp(x - amax(x.detach(), {d}, true));  // y does not depend on the shift
  return e / sum(e, {d}, true);
}

Tensor softmax(const Tensor& input, int64_t dim) {
  check_defined("softmax", input);
  const int64_t d = wrap_dim("softmax", dim, input.shape());
  INK_CHECK(input.is_floating(), "softmax: expected a floating dtype, got ", input.dtype());
  if (input.dim() == 0) return shown_as("softmax", softmax(input.view({1})).view({}));
  if (composed()) return softmax_composed(input, d);
  const bool rows = d == input.dim() - 1;  // kernels are for the last dimension
  if (!rows && !input.device().is_cpu())
    return shown_as("softmax", softmax(input.transpose(d, -1)).transpose(d, -1).contiguous());
  const Tensor x = input.contiguous();
  const DType dtype = x.dtype(), sums = dtype == bf16 ? f32 : dtype;
  Tensor y = empty_like(x);
  if (rows) {
    kernel::softmax(y, x);
  } else if (x.numel() > 0) {  // basic ops compute all lines side by side
    const NoGrad no_grad;
    Tensor e = to(x, sums) - amax(to(x, sums), {d}, true);
    e.exp_();
    y = to(e.div_(sum(e, {d}, true)), dtype);
  }
  return record("softmax", {x}, y, [=, y = Saved::output(y)](const Tensor& dy) -> Grads {
    if (grad_enabled() || !rows) {  // grad_enabled: to be differentiated
      const Tensor a = to(*y, sums), g = to(dy, sums);
      return {to(a * (g - sum(g * a, {d}, true)), dtype)};
    }
    Tensor dx = empty_like(dy);
    kernel::softmax_backward(dx, dy.contiguous(), *y);
    return {dx};
  });
}

}  // namespace ink
