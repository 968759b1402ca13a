// Root-mean-square normalisation over the last dimension, of size C. Zhang and Sennrich 2019.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/shared/norm.h"

namespace ink {

namespace cpu {

void rms_norm(Array& y, Array& rstd, const Array& x, const NormParameters& p) {
  for_computed("rms_norm", x.dtype(), [&]<class C>(C) {
    const int64_t n = x.size(-1);
    const C *w = p.weight.data<C>(), eps = static_cast<C>(p.eps);
    const RowsIn<C> in(x);
    const RowsOut<C> out(y);
    C* rstds = rstd.mutable_data<C>();
    for_each_row<C>(row_count(x), n, 2 * n, [=](int64_t row, C* buffer) {
      C* to = out.row(row, buffer + n);
      rstds[row] = rms_normalise(to, in.row(row, buffer), w, n, eps);
      out.store(row, to);
    });
  });
}

void rms_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& rstd,
                       const Array& weight) {
  norm_backward<false>("rms_norm_backward", d, dy, x, Array(), rstd, weight);
}

}  // namespace cpu

static Tensor rms_norm_composed(const Tensor& input, const Tensor& weight, double eps) {
  const Tensor x = input.to(weight.dtype());
  return (x * rsqrt(mean(x * x, {-1}, true) + eps) * weight).to(autocast(input.dtype()));
}

Tensor rms_norm(const Tensor& input, const Tensor& weight, NumberOf<double> eps) {
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
