// Layer normalisation over the last dimension, of size C. Ba, Kiros, Hinton 2016, eq. 4.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
// rms_norm, root-mean-square normalisation (Zhang and Sennrich 2019): the same without the mean of
// x, of dxhat, and b.
// Under Autocast an f32 x, such as the residual stream, gives a bf16 y, because a linear layer
// follows.
//
// add_layer_norm: s = x + dropout(branch), y = layer_norm(s); dx = ds + the norm's dx,
// dbranch = dropout(dx). add_rms_norm: the same with rms_norm.
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/shared/dropout.h"

namespace ink {

namespace cpu {

namespace {

// A row's mean and rstd by Welford's method in double, for rows whose numbers are equal but for
// rounding, or so large that their squares overflow.
template <class C>
[[gnu::noinline]] std::pair<C, C> careful_moments(const C* x, int64_t n, double eps) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i], apart = v - mean;
    mean += apart / static_cast<double>(i + 1);
    squares += apart * (v - mean);
  }
  return {static_cast<C>(mean),
          static_cast<C>(1 / std::sqrt(squares / static_cast<double>(n) + eps))};
}

// Computes a row of y from one of x, and the row's mean and rstd.
template <class C>
[[gnu::always_inline]] inline std::pair<C, C> normalise(C* y, const C* x, const C* w, const C* b,
                                                        int64_t n, C eps) {
  const C share = 1 / static_cast<C>(n);
  const C near = sum_of<C>(n, [&](int64_t i) { return x[i]; }) * share;
  // Sums distances from a value near the mean, so that no digits are lost if mean >> std (Chan et
  // al. 1983).
  const auto distance = [&](int64_t i) { return x[i] - near; };
  const auto [sum, squares] =
      sums_of<C>(n, distance, [&](int64_t i) { return distance(i) * distance(i); });
  const C drift = sum * share, square = squares * share;
  C m = near + drift, r = 1 / std::sqrt(square - drift * drift + eps);
  if (!(2 * drift * drift <= square && square <= std::numeric_limits<C>::max()))
    std::tie(m, r) = careful_moments<C>(x, n, static_cast<double>(eps));
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * r * w[i] + b[i];
  return {m, r};
}

// A row of rms_norm. Returns its rstd.
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

// The bias, or zeros if there is none.
Array bias_of(const NormParameters& p) {
  if (p.bias.defined()) return p.bias;
  Array zeros = Array::empty(p.weight.shape(), p.weight.dtype(), p.weight.device());
  fill(zeros, 0);
  return zeros;
}

// Rows of y, means and rstds from rows of the input: input(row, room) gives one, with room for 2 n.
// Without means: rms_norm.
template <class C, class Input>
void normalise_rows(Array& y, Array& mean, Array& rstd, const NormParameters& p,
                    const Input& input) {
  const int64_t n = y.size(-1);
  const C *w = p.weight.data<C>(), eps = static_cast<C>(p.eps);
  const RowsOut<C> out(y);
  C* rstds = rstd.mutable_data<C>();
  const auto run = [&](const auto& normalise_row) {
    for_each_row<C>(row_count(y), n, 3 * n, [=](int64_t row, C* buffer) {
      C* to = out.row(row, buffer);
      normalise_row(row, to, input(row, buffer + n));
      out.store(row, to);
    });
  };
  if (!mean.defined())
    return run(
        [=](int64_t row, C* to, const C* x) { rstds[row] = rms_normalise(to, x, w, n, eps); });
  const Array bias = bias_of(p);
  const C* b = bias.data<C>();
  C* means = mean.mutable_data<C>();
  run([=](int64_t row, C* to, const C* x) {
    std::tie(means[row], rstds[row]) = normalise(to, x, w, b, n, eps);
  });
}

// The gradients of y = xhat w + b; not centred, those of a mean and a bias that are 0.
template <bool centred>
void norm_backward(NormGradients& d, const Array& dy, const Array& x, const Array& mean,
                   const Array& rstd, const Array& weight) {
  for_computed("layer_norm_backward", x.dtype(), [&]<class C>(C) {
    const int64_t n = x.size(-1);
    const C *w = weight.data<C>(), *rstds = rstd.data<C>();
    const C* means = centred ? mean.data<C>() : nullptr;
    const RowsIn<C> in(x), upstream(dy), before(d.accumulate ? d.dx : x);  // before: else not read
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
        before.row(row, to);  // bf16 is converted into `to`; otherwise `to` is the row itself
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

}  // namespace

void layer_norm(Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p) {
  for_computed("layer_norm", x.dtype(), [&]<class C>(C) {
    const RowsIn<C> in(x);
    normalise_rows<C>(y, mean, rstd, p, [=](int64_t row, C* room) { return in.row(row, room); });
  });
}

void add_norm(Array& sum, Array& y, Array& mean, Array& rstd, const Array& x, const Array& branch,
              const NormParameters& p) {
  Array dropped = branch;
  if (p.dropout.p > 0) {
    dropped = Array::empty(branch.shape(), branch.dtype(), branch.device());
    dropout(dropped, branch, p.dropout.p, p.dropout.at);
  }
  for_computed("add_norm", x.dtype(), [&]<class C>(C) {
    const int64_t n = x.size(-1);
    const RowsIn<C> in(x), added(dropped), rounded(sum);  // the norm is of the sum as it is stored
    const RowsOut<C> out(sum);
    normalise_rows<C>(y, mean, rstd, p, [=](int64_t row, C* room) {
      const C *a = in.row(row, room), *b = added.row(row, room + n);
      C* s = out.row(row, room);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) s[i] = a[i] + b[i];
      out.store(row, s);
      return rounded.row(row, room);
    });
  });
}

void layer_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& mean,
                         const Array& rstd, const Array& weight) {
  const auto run = mean.defined() ? norm_backward<true> : norm_backward<false>;
  run(d, dy, x, mean, rstd, weight);
}

}  // namespace cpu

// A norm's weight or bias, (C), as its kernels read it: contiguous, in the dtype they compute in
// (f64 for f64, else f32).
static Tensor norm_parameter(const char* op, const char* name, const Tensor& given,
                             const Tensor& x) {
  const Shape shape = {x.size(-1)};
  INK_CHECK(given.shape() == shape, op, ": expected ", name, " of shape ", shape, " for an input ",
            x.shape(), ", got ", given.shape());
  return given.to(x.dtype() == f64 ? f64 : f32).contiguous();
}
// The weight; ones if not given.
static Tensor norm_weight(const char* op, const Tensor& given, const Tensor& x) {
  if (given.defined()) return norm_parameter(op, "weight", given, x);
  return full({x.size(-1)}, 1, {x.dtype() == f64 ? f64 : f32, x.device()});
}

// Memory for the gradient of a norm's input i, of the parameter's shape; undefined if nobody wants
// it.
static Tensor sum_for(VjpContext& g, size_t i, const Tensor& parameter) {
  return g.needs(i) ? empty_like(parameter) : Tensor();
}

namespace {

// layer_norm, or rms_norm, which is not centred.
struct Norm {
  const char* name;
  bool centred;
  double eps;

  Tensor by_definition(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
    const Tensor x = input.to(weight.dtype());
    const Tensor from = centred ? x - mean(x, {-1}, true) : x;
    const Tensor y = from * rsqrt(mean(from * from, {-1}, true) + eps) * weight;
    return (bias.defined() ? y + bias : y).to(autocast(input.dtype()));
  }
  // dx, dw and db in basic ops, so that they can be differentiated again. None depends on the bias.
  Grads gradients(const Tensor& x, const Tensor& weight, const Tensor& dy) const {
    const auto definition = [this](auto& in) { return by_definition(in[0], in[1], {}); };
    Grads grads = differentiate(definition, {x, weight}, dy);
    grads.push_back(centred ? sum_to(dy.to(weight.dtype()), weight.shape()) : Tensor());
    return grads;
  }
  // Means of rows, if they are wanted, and rstds.
  TensorPair moments(const Tensor& x, const Tensor& weight) const {
    const Tensor rstd = empty({row_count(x)}, weight.options());
    return {centred ? empty_like(rstd) : Tensor(), rstd};
  }
  Tensor operator()(const Tensor& input, const Tensor& weight, const Tensor& bias) const;
};

// add_layer_norm, or add_rms_norm.
struct AddedNorm : Norm {
  BranchDropout drop = {};

  // Adds the norm's dx to ds, in place if nobody else holds ds.
  Tensor backward(const Tensor& ds, const Tensor& dy, const Tensor& s, const Tensor& mean,
                  const Tensor& rstd, const Tensor& w, const Tensor& dw, const Tensor& db,
                  const Tensor& dbranch) const {
    const bool copy = ds.defined() && ds.is_contiguous() && !ds.alone();
    Tensor dx = !ds.defined() ? empty_like(s) : copy ? ds.clone() : ds.contiguous();
    kernel::layer_norm_backward({dx, dw, db, ds.defined(), dbranch, drop}, dy.contiguous(), s, mean,
                                rstd, w);
    return dx;
  }
};

}  // namespace

Tensor Norm::operator()(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  check_defined(name, input);
  INK_CHECK(input.dim() >= 1, name, ": needs at least one dimension, got a scalar");
  INK_CHECK(input.is_floating(), name, ": expected a floating dtype, got ", input.dtype());
  const Tensor w = norm_weight(name, weight, input);
  const Tensor b = bias.defined() ? norm_parameter(name, "bias", bias, input) : bias;
  if (composed()) return by_definition(input, w, b);
  const Tensor x = input.contiguous();
  Tensor y = empty(x.shape(), {autocast(x.dtype()), x.device()});
  auto [mean, rstd] = moments(x, w);
  kernel::layer_norm(y, mean, rstd, x, {w, b, eps});
  const Saved saved_x = Saved::input(x), saved_w = Saved::input(w, "its weight");
  const auto vjp = [saved_x, saved_w, mean = mean, rstd = rstd, norm = *this](
                       const Tensor& dy, VjpContext& g) -> Grads {
    const Tensor v = *saved_x;
    if (grad_enabled()) return norm.gradients(v, *saved_w, dy);
    Tensor dx = g.sum_so_far(0), dw = sum_for(g, 1, *saved_w), db = sum_for(g, 2, *saved_w);
    const bool accumulate = dx.defined();
    if (g.needs(0) && !accumulate) dx = empty_like(v);
    kernel::layer_norm_backward({dx, dw, db, accumulate}, dy.contiguous(), v, mean, rstd, *saved_w);
    return {dx, dw, db};
  };
  const auto recompute = [saved_x, saved_w, saved_b = Saved::input(b, "its bias"), norm = *this,
                          options = y.options()] {
    const Tensor v = *saved_x, scale = *saved_w;
    Tensor again = empty(v.shape(), options);
    auto [m, r] = norm.moments(v, scale);
    kernel::layer_norm(again, m, r, v, {scale, *saved_b, norm.eps});
    return again;
  };
  return record(name, {x, w, b}, y, vjp, recompute);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, NumberOf<double> eps) {
  return Norm{"layer_norm", true, eps}(x, weight, bias);
}
// In PyTorch the last op of those it is made of shows.
Tensor rms_norm(const Tensor& x, const Tensor& weight, NumberOf<double> eps) {
  const Tensor y = Norm{"rms_norm", false, eps}(x, weight, {});
  return composed() ? y : shown_as(x.dtype() == bf16 ? "to_copy" : "mul", y);
}

static TensorPair add_norm(AddedNorm norm, const Tensor& left, const Tensor& right,
                           const Tensor& weight, const Tensor& bias, double dropout_p) {
  check_defined(norm.name, left, right);
  INK_CHECK(left.shape() == right.shape(), norm.name, ": expected two of one shape, got ",
            left.shape(), " and ", right.shape());
  INK_CHECK(left.is_floating() && right.is_floating(), norm.name,
            ": expected floating dtypes, got ", left.dtype(), " and ", right.dtype());
  // Recompute computes y again, which is for ops with one output.
  if (composed() || context().recompute || right.dtype() != autocast(left.dtype())) {
    const Tensor s = left + dropout(right, dropout_p);
    return {s,
            norm.centred ? layer_norm(s, weight, bias, norm.eps) : rms_norm(s, weight, norm.eps)};
  }
  if (dropout_p != 0 && context().imitate_torch)  // whose masks the kernel does not draw
    return add_norm(norm, left, dropout(right, dropout_p), weight, bias, 0);
  norm.drop = {dropout_p, dropout_p != 0 ? next_mask(right, dropout_p) : RandomPosition()};
  const Tensor x = left.contiguous(), branch = right.contiguous();
  INK_CHECK(x.dim() >= 1, norm.name, ": needs at least one dimension, got scalars");
  const Tensor w = norm_weight(norm.name, weight, x);
  const Tensor b = bias.defined() ? norm_parameter(norm.name, "bias", bias, x) : bias;
  Tensor s = empty_like(x), y = empty_like(branch);
  auto [mean, rstd] = norm.moments(x, w);
  kernel::add_norm(s, y, mean, rstd, x, branch, {w, b, norm.eps, norm.drop});
  const auto vjp = [saved_s = Saved::output(s), saved_w = Saved::input(w, "its weight"),
                    mean = mean, rstd = rstd, dtype = branch.dtype(),
                    norm](const Grads& dys, VjpContext& g) -> Grads {
    const auto& drop = norm.drop;
    const auto to_branch = [&](const Tensor& dx) {
      if (!g.needs(1)) return Tensor();
      return drop.p > 0 ? dropout_at(to(dx, dtype), drop.p, drop.at) : to(dx, dtype);
    };
    if (grad_enabled()) {
      Grads d(3);
      if (dys[1].defined()) d = norm.gradients(*saved_s, *saved_w, dys[1]);
      const Tensor dx = !d[0].defined() ? dys[0] : dys[0].defined() ? dys[0] + d[0] : d[0];
      return {dx, to_branch(dx), d[1], d[2]};
    }
    if (!dys[1].defined()) return {dys[0], to_branch(dys[0]), {}, {}};
    const Tensor dw = sum_for(g, 2, *saved_w), db = sum_for(g, 3, *saved_w), v = *saved_s;
    const bool apart = g.needs(1) && (dtype != v.dtype() || drop.p > 0);
    const Tensor dbranch = apart ? empty(v.shape(), {dtype, v.device()}) : Tensor();
    const Tensor dx = norm.backward(dys[0], dys[1], v, mean, rstd, *saved_w, dw, db, dbranch);
    return {dx, apart ? dbranch : to_branch(dx), dw, db};
  };
  const auto both = record(norm.name, {x, branch, w, b}, {s, y}, vjp);
  return {both[0], both[1]};
}

TensorPair add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight,
                          const Tensor& bias, NumberOf<double> eps, double dropout_p) {
  return add_norm({{"add_layer_norm", true, eps}}, x, branch, weight, bias, dropout_p);
}
TensorPair add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight,
                        NumberOf<double> eps, double dropout_p) {
  return add_norm({{"add_rms_norm", false, eps}}, x, branch, weight, {}, dropout_p);
}

}  // namespace ink
