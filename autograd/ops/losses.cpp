// Losses in basic ops. No training step here computes them.
#include "autograd/kernels/elementwise.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/check_ids.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : mean(losses);
}

// Both in one floating dtype. A scalar's dtype counts too, because PyTorch broadcasts it first.
std::pair<Tensor, Tensor> checked(const char* op, const Tensor& input, const Tensor& target) {
  check_defined(op, input, target);
  const DType dtype = promote(input.dtype(), target.dtype());
  INK_CHECK(is_floating(dtype), op, ": expected a floating dtype, got ", dtype);
  broadcast_shapes(op, input.shape(), target.shape());
  return {to(input, dtype), to(target, dtype)};
}

// For each target: its id and the weight of its class, both 0 if it is ignored; and if it is.
// Undefined: the weights if each is 1, and `ignored` if it is known that none is.
struct Targets {
  Tensor ids, weights, ignored;

  Tensor without_ignored(const Tensor& x) const {
    return ignored.defined() ? masked_fill(x, ignored, 0) : x;
  }
  Tensor weighted(const Tensor& losses) const {
    return weights.defined() ? losses * weights : losses;
  }
  // -log_p[target] w
  Tensor losses(const Tensor& log_p, int64_t d) const {
    return weighted(without_ignored(-gather(log_p, d, unsqueeze(ids, d)).squeeze(d)));
  }
};
Targets targets_of(const char* op, const Tensor& log_p, const Tensor& targets,
                   const ClassOptions& options) {
  INK_CHECK(log_p.dim() > 0, op, ": expected a dimension of classes, got a scalar");
  Shape expected = log_p.shape();
  const int64_t d = wrap_dim(op, options.dim, log_p.shape());
  expected.erase(d);
  INK_CHECK(targets.shape() == expected, op, ": expected targets of shape ", expected,
            " for classes in dimension ", d, " of ", log_p.shape(), ", got ", targets.shape(),
            classes_hint(log_p.shape(), targets.shape()));
  const int64_t classes = log_p.shape()[d], ignore = options.ignore_index;
  const bool in_range = check_ids(op, "target", targets, classes, "classes", ignore);
  INK_CHECK(!options.weight.defined() || options.weight.shape() == Shape{log_p.shape()[d]}, op,
            ": expected a weight for each of ", log_p.shape()[d], " classes, got ",
            options.weight.shape());
  if (in_range && (ignore < 0 || ignore >= classes) && !options.weight.defined())
    return {targets, {}, {}};
  const Tensor ignored = targets == options.ignore_index;
  const Tensor ids = masked_fill(targets, ignored, 0);
  const Tensor weights = options.weight.defined()
                             ? reshape(index_select(options.weight, 0, ids.flatten()), ids.shape())
                             : ones(ids.shape(), log_p.options());
  return {ids, masked_fill(weights, ignored, 0), ignored};
}

Tensor weighted(const Tensor& losses, const Tensor& weights, Reduction reduction) {
  if (reduction != Reduction::mean || !weights.defined()) return reduced(losses, reduction);
  return sum(losses) / sum(to(weights, losses.dtype()));
}

// The result of nll_loss, and of a cross_entropy that is made of it in PyTorch, for x's classes.
Tensor shown_as_nll(const Tensor& x, Reduction reduction, const Tensor& result) {
  const int64_t dims = x.dim();
  const bool seen_as_four = dims > 2 && dims != 4 && reduction == Reduction::none;
  return shown_as(seen_as_four ? "view" : dims > 2 ? "nll_loss2_d" : "nll_loss", result);
}

}  // namespace

Tensor l1_loss(const Tensor& left, const Tensor& right, Reduction reduction) {
  const auto [input, target] = checked("l1_loss", left, right);
  return shown_as(reduction == Reduction::none  ? "abs"
                  : reduction == Reduction::sum ? "sum"
                                                : "mean",
                  reduced(abs(input - target), reduction));
}

static Tensor wide(const Tensor& x) { return x.dtype() == bf16 ? to(x, f32) : x; }

// y = d^2 / 2 beta where |d| < beta, else |d| - beta / 2.   dd = dy d / beta, from -dy to dy
static Tensor smooth_l1(const Tensor& d, double beta) {
  const Tensor y = value_of(BinaryOp::smooth_l1, d, beta);
  return record("smooth_l1_loss", {d}, y, [d = Saved::input(d), beta](const Tensor& dy) -> Grads {
    return {dy * clamp(*d / beta, -1, 1)};
  });
}

Tensor smooth_l1_loss(const Tensor& left, const Tensor& right, Reduction reduction, double beta) {
  const auto [input, target] = checked("smooth_l1_loss", left, right);
  INK_CHECK(beta >= 0, "smooth_l1_loss: expected a beta of 0 or more, got ", beta);
  if (beta == 0) return l1_loss(input, target, reduction);
  const Tensor y = smooth_l1(wide(input) - wide(target), beta);  // as in PyTorch; others round d
  return shown_as("smooth_l1_loss", reduced(to(y, input.dtype()), reduction));
}

// y = log(1 + exp(-|x|)) + (1 - t) max(x, 0) + t max(-x, 0), which loses no digits in either tail.
// dx = dy ((1 - t) sigmoid(x) - t sigmoid(-x)),  dt = -dy x.   bf16 is computed in f32.
static Tensor logit_losses(const Tensor& x, const Tensor& t) {
  const auto value = [&] {
    const NoGrad no_grad;
    const Tensor a = wide(x), b = wide(t);
    return to(softplus(-abs(a)) + ((1 - b) * relu(a) + b * relu(-a)), x.dtype());
  };
  const auto vjp = [x = Saved::input(x), t = Saved::input(t)](const Tensor& dy,
                                                              VjpContext& g) -> Grads {
    const Tensor a = wide(*x), b = wide(*t), d = wide(dy);
    const auto slope = [&] { return d * ((1 - b) * sigmoid(a) - b * sigmoid(-a)); };
    return {g.needs(0) ? to(slope(), dy.dtype()) : Tensor(),
            g.needs(1) ? to(-d * a, dy.dtype()) : Tensor()};
  };
  return record("binary_cross_entropy_with_logits", {x, t}, value(), vjp);
}

Tensor binary_cross_entropy_with_logits(const Tensor& left, const Tensor& right,
                                        Reduction reduction) {
  const auto [x, t] = checked("binary_cross_entropy_with_logits", left, right);
  INK_CHECK(x.shape() == t.shape(), "binary_cross_entropy_with_logits: expected targets of shape ",
            x.shape(), ", got ", t.shape());
  return shown_as("binary_cross_entropy_with_logits", reduced(logit_losses(x, t), reduction));
}

// y = -t log p - (1 - t) log(1 - p), each log at least -100.   As in PyTorch, that bound has no
// part in the gradients: dp = dy (p - t) / max(p (1 - p), 1e-12f),  dt = dy (log(1 - p) - log p)
static Tensor probability_losses(const Tensor& p, const Tensor& t) {
  const auto value = [&] {
    const NoGrad no_grad;
    const Tensor a = wide(p), b = wide(t);
    return to((b - 1) * clamp_min(log1p(-a), -100) - b * clamp_min(log(a), -100), p.dtype());
  };
  const auto vjp = [p = Saved::input(p), t = Saved::input(t)](const Tensor& dy,
                                                              VjpContext& g) -> Grads {
    const Tensor a = wide(*p), b = wide(*t), d = wide(dy);
    const auto slope = [&] { return d * (a - b) / clamp_min((1 - a) * a, 1e-12F); };
    return {g.needs(0) ? to(slope(), dy.dtype()) : Tensor(),
            g.needs(1) ? to(d * (log1p(-a) - log(a)), dy.dtype()) : Tensor()};
  };
  return record("binary_cross_entropy", {p, t}, value(), vjp);
}

Tensor binary_cross_entropy(const Tensor& left, const Tensor& right, Reduction reduction) {
  const auto [p, t] = checked("binary_cross_entropy", left, right);
  INK_CHECK(p.shape() == t.shape(), "binary_cross_entropy: expected targets of shape ", p.shape(),
            ", got ", t.shape());
  const auto in_range = [](const Tensor& x) {  // a GPU is not waited for
    return !x.device().is_cpu() || all((x >= 0) & (x <= 1)).item<bool>();
  };
  INK_CHECK(in_range(p), "binary_cross_entropy: expected probabilities in [0, 1]; ",
            "binary_cross_entropy_with_logits takes other numbers, before sigmoid");
  INK_CHECK(in_range(t), "binary_cross_entropy: expected targets in [0, 1]");
  return shown_as("binary_cross_entropy", reduced(probability_losses(p, t), reduction));
}

// t (log t - input), 0 where t = 0
Tensor kl_div(const Tensor& left, const Tensor& right, Reduction reduction, bool log_target) {
  const auto [p, q] = promoted("kl_div", left, right);
  const auto [input, target] = checked("kl_div", p, q);
  if (log_target) return reduced(exp(target) * (target - input), reduction);
  const Tensor none = target == 0, t = masked_fill(target, none, 1);
  return reduced(masked_fill(t * log(t), none, 0) - target * input, reduction);
}

Tensor nll_loss(const Tensor& log_p, const Tensor& targets, const ClassOptions& options) {
  check_defined("nll_loss", log_p, targets);
  const Targets wanted = targets_of("nll_loss", log_p, targets, options);
  const Tensor losses = wanted.losses(log_p, wrap_dim("nll_loss", options.dim, log_p.shape()));
  return shown_as_nll(log_p, options.reduction,
                      weighted(losses, wanted.weights, options.reduction));
}

// With label smoothing e, the target has probability 1 - e, and e is spread over all V classes:
//   (1 - e) nll + e / V sum_c -w_c log p_c
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const ClassOptions& options) {
  check_defined("cross_entropy", logits, targets);
  const double e = options.label_smoothing;
  INK_CHECK(e >= 0 && e <= 1, "cross_entropy: expected a label smoothing in [0, 1], got ", e);
  const Targets wanted = targets_of("cross_entropy", logits, targets, options);
  const int64_t d = wrap_dim("cross_entropy", options.dim, logits.shape());
  if (e == 0) {  // the fused op keeps the digits of a loss and a gradient near 0
    Shape order;
    for (int64_t i = 0; i < logits.dim(); ++i) order.push_back(i);
    order.erase(d);
    order.push_back(d);
    const Tensor losses = wanted.weighted(
        cross_entropy(permute(logits, order), targets, options.ignore_index, Reduction::none));
    const Tensor result = weighted(losses, wanted.weights, options.reduction);
    return shown_as_nll(logits, options.reduction, to(result, logits.dtype()));
  }
  const Tensor log_p = log_softmax(logits, d);
  Tensor of_all = -log_p;
  if (options.weight.defined()) {
    Shape along = Shape::filled(logits.dim(), 1);
    along[d] = -1;
    of_all = of_all * view(options.weight, along);
  }
  const double share = e / static_cast<double>(logits.shape()[d]);
  const Tensor all = wanted.without_ignored(sum(of_all, {d}));
  const auto mean_of = [&](const Tensor& x) {
    return weighted(x, wanted.weights, options.reduction);
  };
  return shown_as("add", mean_of(wanted.losses(log_p, d)) * (1 - e) + mean_of(all) * share);
}

}  // namespace ink
