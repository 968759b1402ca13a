// Layer normalisation over the last dimension, of size C. Ba, Kiros, Hinton 2016, eq. 4.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
// Under Autocast an f32 x, such as the residual stream, gives a bf16 y: written for the linear
// layer that follows.
#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/rows.h"

namespace ink {

namespace cpu {

void layer_norm(Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& weight,
                const Tensor& bias, double eps) {
  for_norm("layer_norm", x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *b = bias.data<C>(), count = static_cast<C>(n);
    const X* in = x.data<X>();
    Y* out = y.mutable_data<Y>();
    C *means = mean.mutable_data<C>(), *rstds = rstd.mutable_data<C>();
    for_each_row(row_count(x), n, [=](int64_t row) {
      const X* a = in + row * n;
      Y* to = out + row * n;
      const C near = sum_of<C>(n, [&](int64_t i) { return static_cast<C>(a[i]); }) / count;
      // Around a value near the mean, so that nothing is lost where mean >> std (Chan et al. 1983).
      const auto [drift, squares] = sums_of<C>(n, [&](int64_t i, C& sum, C& sum_of_squares) {
        const C d = static_cast<C>(a[i]) - near;
        sum += d;
        sum_of_squares += d * d;
      });
      const C m = near + drift / count;
      const C variance = (squares - drift * (drift / count)) / count;
      const C r = 1 / std::sqrt(variance + static_cast<C>(eps));
      for (int64_t i = 0; i < n; ++i)
        to[i] = static_cast<Y>((static_cast<C>(a[i]) - m) * r * w[i] + b[i]);
      means[row] = m;
      rstds[row] = r;
    });
  });
}

void layer_norm_backward(Tensor& dx, Tensor& dweight, Tensor& dbias, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, bool accumulate) {
  for_norm("layer_norm_backward", x, dy, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *means = mean.data<C>(), *rstds = rstd.data<C>();
    const X* in = x.data<X>();
    const Y* upstream = dy.data<Y>();
    X* down = dx.defined() ? dx.mutable_data<X>() : nullptr;
    const Tensor sums = sum_over_rows<C>(row_count(x), 2 * n, [=](int64_t row, C* dw) {
      const X* a = in + row * n;
      const Y* g = upstream + row * n;
      C* db = dw + n;
      const C m = means[row], r = rstds[row], share = 1 / static_cast<C>(n);
      const auto xhat = [&](int64_t i) { return (static_cast<C>(a[i]) - m) * r; };
      const auto dxhat = [&](int64_t i) { return static_cast<C>(g[i]) * w[i]; };
      const auto [dot, total] = sums_of<C>(n, [&](int64_t i, C& dot_, C& total_) {
        dw[i] += static_cast<C>(g[i]) * xhat(i);
        db[i] += static_cast<C>(g[i]);
        dot_ += dxhat(i) * xhat(i);
        total_ += dxhat(i);
      });
      if (down == nullptr) return;
      X* d = down + row * n;
      const auto slope = [&](int64_t i) {
        return (dxhat(i) - (total + xhat(i) * dot) * share) * r;
      };
      if (accumulate) {
        for (int64_t i = 0; i < n; ++i) d[i] = static_cast<X>(static_cast<C>(d[i]) + slope(i));
      } else {
        for (int64_t i = 0; i < n; ++i) d[i] = static_cast<X>(slope(i));
      }
    });
    add_part(dweight, sums.data<C>());
    add_part(dbias, sums.data<C>() + n);
  });
}

}  // namespace cpu

static Tensor layer_norm_composed(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                  double eps) {
  const Tensor x = input.to(weight.dtype());
  const Tensor centred = x - mean(x, {-1}, true);
  const Tensor variance = mean(centred * centred, {-1}, true);
  return (centred * rsqrt(variance + eps) * weight + bias).to(autocast(input.dtype()));
}

Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps) {
  INK_CHECK(input.dim() >= 1, "layer_norm: needs at least one dimension, got a scalar");
  INK_CHECK(input.is_floating(), "layer_norm: expected a floating dtype, got ", input.dtype());
  const Tensor w = norm_parameter("layer_norm", "weight", weight, input, 1);
  const Tensor b = norm_parameter("layer_norm", "bias", bias, input, 0);
  if (composed()) return layer_norm_composed(input, w, b, eps);
  const Tensor x = input.contiguous();
  Tensor y = empty(x.shape(), {autocast(x.dtype()), x.device()});
  Tensor mean = empty({row_count(x)}, w.options()), rstd = empty_like(mean);
  kernel::layer_norm(y, mean, rstd, x, w, b, eps);
  const Saved saved_x = Saved::input(x), saved_w = Saved::input(w, "its weight");
  const auto vjp = [saved_x, saved_w, mean, rstd](const Tensor& dy, VjpContext& g) -> Grads {
    const Tensor v = *saved_x;
    Tensor dx = g.into(0), dw = sum_for(g, 1, *saved_w), db = sum_for(g, 2, *saved_w);
    const bool accumulate = dx.defined();
    if (g.needs(0) && !accumulate) dx = empty_like(v);
    kernel::layer_norm_backward(dx, dw, db, dy.contiguous(), v, mean, rstd, *saved_w, accumulate);
    return {dx, dw, db};
  };
  const auto remake = [saved_x, saved_w, saved_b = Saved::input(b, "its bias"), eps,
                       options = y.options()] {
    const Tensor v = *saved_x, scale = *saved_w;
    Tensor again = empty(v.shape(), options), m = empty({row_count(v)}, scale.options()),
           r = empty_like(m);
    kernel::layer_norm(again, m, r, v, scale, *saved_b, eps);
    return again;
  };
  return record_fused("layer_norm", {x, w, b}, y, vjp, remake);
}

}  // namespace ink
