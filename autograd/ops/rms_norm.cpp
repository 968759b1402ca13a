// Root-mean-square normalisation over the last dimension, of size C. Zhang and Sennrich 2019.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/rows.h"

namespace ink {

namespace cpu {

void rms_norm(Tensor& y, Tensor& rstd, const Tensor& x, const Tensor& weight, double eps) {
  for_float("rms_norm", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const int64_t n = x.size(-1);
    const C* w = weight.data<C>();
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    C* rstds = rstd.mutable_data<C>();
    for_each_row(row_count(x), n, [=](int64_t row) {
      const T* a = in + row * n;
      T* to = out + row * n;
      const auto value = [&](int64_t i) { return static_cast<C>(a[i]); };
      const C squares = sum_of<C>(n, [&](int64_t i) { return value(i) * value(i); });
      const C r = 1 / std::sqrt(squares / static_cast<C>(n) + static_cast<C>(eps));
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(value(i) * r * w[i]);
      rstds[row] = r;
    });
  });
}

void rms_norm_backward(Tensor& dx, Tensor& dweight, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight) {
  for_float("rms_norm_backward", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *rstds = rstd.data<C>();
    const T *in = x.data<T>(), *upstream = dy.data<T>();
    T* down = dx.defined() ? dx.mutable_data<T>() : nullptr;
    const Tensor sums = sum_over_rows<C>(row_count(x), n, [=](int64_t row, C* dw) {
      const T *a = in + row * n, *g = upstream + row * n;
      const C r = rstds[row], share = 1 / static_cast<C>(n);
      const auto xhat = [&](int64_t i) { return static_cast<C>(a[i]) * r; };
      const auto dxhat = [&](int64_t i) { return static_cast<C>(g[i]) * w[i]; };
      const C dot = sum_of<C>(n, [&](int64_t i) {
        dw[i] += static_cast<C>(g[i]) * xhat(i);
        return dxhat(i) * xhat(i);
      });
      if (down == nullptr) return;
      T* d = down + row * n;
      for (int64_t i = 0; i < n; ++i) d[i] = static_cast<T>((dxhat(i) - xhat(i) * dot * share) * r);
    });
    add_part(dweight, sums.data<C>());
  });
}

}  // namespace cpu

static Tensor rms_norm_composed(const Tensor& input, const Tensor& weight, double eps) {
  const Tensor x = input.to(weight.dtype());
  return (x * rsqrt(mean(x * x, {-1}, true) + eps) * weight).to(input.dtype());
}

Tensor rms_norm(const Tensor& input, const Tensor& weight, double eps) {
  INK_CHECK(input.dim() >= 1, "rms_norm: needs at least one dimension, got a scalar");
  INK_CHECK(input.is_floating(), "rms_norm: expected a floating dtype, got ", input.dtype());
  const Tensor w = norm_parameter("rms_norm", "weight", weight, input, 1);
  if (composed()) return rms_norm_composed(input, w, eps);
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x), rstd = empty({row_count(x)}, w.options());
  kernel::rms_norm(y, rstd, x, w, eps);
  const auto vjp = [x = Saved::input(x), w = Saved::input(w, "its weight"), rstd](
                       const Tensor& dy, VjpContext& g) -> Grads {
    Tensor dx = g.needs(0) ? empty_like(dy) : Tensor();
    Tensor dw = sum_for(g, 1, *w);
    kernel::rms_norm_backward(dx, dw, dy.contiguous(), *x, rstd, *w);
    return {dx, dw};
  };
  return record_fused("rms_norm", {x, w}, y, vjp);
}

}  // namespace ink
