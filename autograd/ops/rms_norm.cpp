// Root-mean-square normalisation over the last dimension, of size C. Zhang and Sennrich 2019.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include <cmath>
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/shared/norm.h"

namespace ink {

namespace cpu {

void rms_norm(Array& y, Array& rstd, const Array& x, const NormParameters& p) {
  for_norm("rms_norm", x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    const int64_t n = x.size(-1);
    const C* w = p.weight.data<C>();
    const auto eps = static_cast<C>(p.eps);
    const X* in = x.data<X>();
    Y* out = y.mutable_data<Y>();
    C* rstds = rstd.mutable_data<C>();
    for_each_row(row_count(x), n, [=](int64_t row) {
      const X* a = in + row * n;
      Y* to = out + row * n;
      const auto value = [&](int64_t i) { return static_cast<C>(a[i]); };
      const auto rstd_of = [&](C scale) {  // computed from scale x, a power of two
        const C squares =
            sum_of<C>(n, [&](int64_t i) { return (value(i) * scale) * (value(i) * scale); });
        return scale / std::sqrt(squares / static_cast<C>(n) + eps * scale * scale);
      };
      C r = rstd_of(1);
      if (r == 0) r = rstd_of(std::is_same_v<C, double> ? C(0x1p-530) : C(0x1p-70));  // overflow
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Y>(value(i) * r * w[i]);
      rstds[row] = r;
    });
  });
}

void rms_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& rstd,
                       const Array& weight) {
  for_norm("rms_norm_backward", x, dy, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *rstds = rstd.data<C>();
    const X* in = x.data<X>();
    const Y* upstream = dy.data<Y>();
    X* down = d.dx.defined() ? d.dx.mutable_data<X>() : nullptr;
    const bool accumulate = d.accumulate;
    const Array sums = sum_over_rows<C>(row_count(x), n, [=](int64_t row, C* dw) {
      const X* a = in + row * n;
      const Y* g = upstream + row * n;
      const C r = rstds[row], share = 1 / static_cast<C>(n);
      const auto xhat = [&](int64_t i) { return static_cast<C>(a[i]) * r; };
      const auto dxhat = [&](int64_t i) { return static_cast<C>(g[i]) * w[i]; };
      const C dot = sum_of<C>(n, [&](int64_t i) { return dxhat(i) * xhat(i); });
      const auto slope = [&](int64_t i) { return (dxhat(i) - xhat(i) * dot * share) * r; };
      const auto finish = [&](auto&& write) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
          dw[i] += static_cast<C>(g[i]) * xhat(i);
          write(i);
        }
      };
      X* to = down ? down + row * n : nullptr;
      if (!to) return finish([](int64_t) {});
      if (!accumulate) return finish([&](int64_t i) { to[i] = static_cast<X>(slope(i)); });
      finish([&](int64_t i) { to[i] = static_cast<X>(static_cast<C>(to[i]) + slope(i)); });
    });
    put_part(d.dweight, sums.data<C>());
  });
}

}  // namespace cpu

static Tensor rms_norm_composed(const Tensor& input, const Tensor& weight, double eps) {
  const Tensor x = input.to(weight.dtype());
  return (x * rsqrt(mean(x * x, {-1}, true) + eps) * weight).to(autocast(input.dtype()));
}

Tensor rms_norm(const Tensor& input, const Tensor& weight, double eps) {
  check_defined("rms_norm", input);
  INK_CHECK(input.dim() >= 1, "rms_norm: needs at least one dimension, got a scalar");
  INK_CHECK(input.is_floating(), "rms_norm: expected a floating dtype, got ", input.dtype());
  const Tensor w = norm_weight("rms_norm", weight, input);
  if (composed()) return rms_norm_composed(input, w, eps);
  const Tensor x = input.contiguous();
  Tensor y = empty(x.shape(), {autocast(x.dtype()), x.device()});
  Tensor rstd = empty({row_count(x)}, w.options());
  kernel::rms_norm(y, rstd, x, {w, {}, eps});
  const Saved saved_x = Saved::input(x), saved_w = Saved::input(w, "its weight");
  const auto vjp = [saved_x, saved_w, rstd, eps](const Tensor& dy, VjpContext& g) -> Grads {
    const Tensor v = *saved_x;
    if (grad_enabled()) {
      const auto definition = [eps](auto& in) { return rms_norm_composed(in[0], in[1], eps); };
      return differentiate(definition, {v, *saved_w}, dy);
    }
    Tensor dx = g.sum_so_far(0), dw = sum_for(g, 1, *saved_w);
    const bool accumulate = dx.defined();
    if (g.needs(0) && !accumulate) dx = empty_like(v);
    kernel::rms_norm_backward({dx, dw, {}, accumulate}, dy.contiguous(), v, rstd, *saved_w);
    return {dx, dw};
  };
  const auto recompute = [saved_x, saved_w, eps, options = y.options()] {
    const Tensor v = *saved_x, scale = *saved_w;
    Tensor again = empty(v.shape(), options), r = empty({row_count(v)}, scale.options());
    kernel::rms_norm(again, r, v, {scale, {}, eps});
    return again;
  };
  return shown_as(x.dtype() == bf16 ? "to_copy" : "mul",
                  record("rms_norm", {x, w}, y, vjp, recompute));
}

}  // namespace ink
