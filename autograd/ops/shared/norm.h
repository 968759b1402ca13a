// What layer_norm and rms_norm share.
#pragma once

#include <array>
#include <cmath>
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"

namespace ink {

namespace cpu {

/// A row of rms_norm. Returns its rstd.
template <class C>
[[gnu::always_inline]] inline C rms_normalise(C* y, const C* x, const C* w, int64_t n, C eps) {
  const auto rstd_of = [&](C scale) {  // computed from scale x, a power of two
    const C squares = sum_of<C>(n, [&](int64_t i) { return (x[i] * scale) * (x[i] * scale); });
    return scale / std::sqrt(squares / static_cast<C>(n) + eps * scale * scale);
  };
  C r = rstd_of(1);
  if (r == 0) r = rstd_of(std::is_same_v<C, double> ? C(0x1p-530) : C(0x1p-70));  // overflow
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
  return r;
}

/// The gradients of y = xhat w + b (layer_norm.cpp); not centred, those of a mean and a bias that
/// are 0 (rms_norm.cpp).
template <bool centred>
void norm_backward(const char* op, NormGradients& d, const Array& dy, const Array& x,
                   const Array& mean, const Array& rstd, const Array& weight) {
  for_computed(op, x.dtype(), [&]<class C>(C) {
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *rstds = rstd.data<C>();
    const C* means = centred ? mean.data<C>() : nullptr;
    const RowsIn<C> in(x), upstream(dy), before(d.accumulate ? d.dx : x);
    const RowsOut<C> down(d.dx), branch(d.dbranch);
    const auto add_row = [=, accumulate = d.accumulate](int64_t row, C* dw, C* room) {
      const C *a = in.row(row, room), *g = upstream.row(row, room + n);
      C *to = down.row(row, room + 2 * n), *db = dw + n;
      const C m = centred ? means[row] : 0, r = rstds[row], share = 1 / static_cast<C>(n);
      const auto xhat = [&](int64_t i) { return centred ? (a[i] - m) * r : a[i] * r; };
      const auto dxhat = [&](int64_t i) { return g[i] * w[i]; };
      const auto product = [&](int64_t i) { return dxhat(i) * xhat(i); };
      std::array<C, 2> sums{};  // of dxhat xhat, and of dxhat
      if constexpr (centred) {
        sums = sums_of<C>(n, product, dxhat);
      } else {
        sums[0] = sum_of<C>(n, product);
      }
      const C dot = sums[0], total = sums[1];
      const auto slope = [&](int64_t i) {
        return (dxhat(i) - (centred ? total + xhat(i) * dot : xhat(i) * dot) * share) * r;
      };
      const auto finish = [&](auto&& write) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
          dw[i] += g[i] * xhat(i);
          if constexpr (centred) db[i] += g[i];
          write(i);
        }
      };
      if (accumulate) {
        before.row(row, to);
        finish([&](int64_t i) { to[i] += slope(i); });
      } else {
        finish([&](int64_t i) { to[i] = slope(i); });
      }
      down.store(row, to);
      branch.store(row, to);
    };
    const Array sums = sum_over_rows<C>(row_count(x), centred ? 2 * n : n, 3 * n, add_row);
    put_part(d.dweight, sums.data<C>());
    if (centred) put_part(d.dbias, sums.data<C>() + n);
  });
  if (d.dbranch.defined() && d.dropout.p > 0)
    dropout(d.dbranch, d.dbranch, d.dropout.p, d.dropout.at);
}

}  // namespace cpu

/// A norm's weight or bias, (C), as its kernels read it: contiguous, in the dtype they compute in
/// (f64 for f64, else f32).
inline Tensor norm_parameter(const char* op, const char* name, const Tensor& given,
                             const Tensor& x) {
  const Shape shape = {x.size(-1)};
  INK_CHECK(given.shape() == shape, op, ": expected ", name, " of shape ", shape, " for an input ",
            x.shape(), ", got ", given.shape());
  return given.to(x.dtype() == f64 ? f64 : f32).contiguous();
}
/// The weight; ones if not given.
inline Tensor norm_weight(const char* op, const Tensor& given, const Tensor& x) {
  if (given.defined()) return norm_parameter(op, "weight", given, x);
  return full({x.size(-1)}, 1, {x.dtype() == f64 ? f64 : f32, x.device()});
}

/// Memory for the gradient of a norm's input i, of the parameter's shape; undefined if nobody wants
/// it.
inline Tensor sum_for(VjpContext& g, size_t i, const Tensor& parameter) {
  return g.needs(i) ? empty_like(parameter) : Tensor();
}

}  // namespace ink
