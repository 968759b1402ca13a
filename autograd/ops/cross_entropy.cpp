// Cross entropy of logits (..., V) with the classes that targets (...) name.
//   loss_i    = lse_i - x_i[target_i] + z lse_i^2,  lse_i = log sum exp x_i;  0 where the target is
//               ignored
//   dlogits_i = ((1 + 2 z lse_i) softmax x_i - onehot target_i) dloss_i
// If a gradient is wanted, the forward pass, which has the exponentials, also computes dlogits for
// dloss = 1. Backward only scales it.
#include <algorithm>

#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {

namespace cpu {

void target_scale(Array& scale, const Array& targets, int64_t ignore_index) {
  const int64_t* target = targets.data<int64_t>();
  const int64_t n = targets.numel(), ignored = std::count(target, target + n, ignore_index);
  for_float("target_scale", scale.dtype(), [&]<class C>(C) {
    *scale.mutable_data<C>() = static_cast<C>(1.0 / static_cast<double>(n - ignored));
  });
}

// The loss of one row of n logits. d, which may be a itself, gets `weight` times its gradient if
// the gradient is wanted.
template <class C>
static C cross_entropy_row(C* d, const C* a, int64_t n, int64_t target, C weight, C z) {
  const C top = max_of<C>(n, [&](int64_t i) { return a[i]; });
  const auto e = [&](int64_t i) { return simd::exp_nonpositive(a[i] - top); };
  const C below = top - a[target], likely = e(target);
  const auto loss = [&](C lse) {
    return lse + below + (z == 0 ? 0 : z * (lse + top) * (lse + top));
  };
  if (d == nullptr) {
    const C total = sum_of<C>(n, e);
    return loss(simd::log_of_sum(total, others_of(total, simd::kOneTerm<C>, n, e)));
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) d[i] = e(i);
  const auto kept = [&](int64_t i) { return d[i]; };
  const C total = sum_of<C>(n, kept), others = others_of(total, simd::kOneTerm<C>, n, kept),
          lse = simd::log_of_sum(total, others), more = z == 0 ? C(0) : 2 * z * (lse + top),
          share = weight / total * (1 + more);
  for (int64_t i = 0; i < n; ++i) d[i] *= share;
  // Where the target has nearly all, p - 1 has no digits left: it is -others / total.
  const bool alone = likely == 1 && total < simd::kOneTerm<C>;
  d[target] = alone ? weight / total * (more - others) : likely * share - weight;
  return loss(lse);
}

void cross_entropy(Array& loss, Array& dlogits, const Array& logits, const Array& targets,
                   const Array& scale, int64_t ignore_index, double z_loss) {
  for_computed("cross_entropy", logits.dtype(), [&]<class C>(C) {
    const int64_t n = logits.size(-1), rows = targets.numel();
    const int64_t* target = targets.data<int64_t>();
    const RowsIn<C> in(logits);
    const RowsOut<C> down(dlogits);
    const bool wanted = dlogits.defined();
    Array by_row = loss.dim() ? loss : Array::empty({rows}, loss.dtype(), loss.device());
    C* losses = by_row.mutable_data<C>();
    const C weight = scale.defined() ? *scale.data<C>() : C(1);
    for_each_row<C>(rows, n, n, [=](int64_t row, C* buffer) {
      C* d = wanted ? down.row(row, buffer) : nullptr;
      if (target[row] != ignore_index) {
        losses[row] = cross_entropy_row(d, in.row(row, buffer), n, target[row], weight, C(z_loss));
      } else {
        losses[row] = 0;
        if (wanted) std::fill_n(d, n, C(0));
      }
      down.store(row, d);
    });
    if (loss.dim() == 0)
      *loss.mutable_data<C>() = sum_of<C>(rows, [&](int64_t i) { return losses[i]; }) * weight;
  });
}

}  // namespace cpu

static Tensor cross_entropy_composed(const Tensor& input, const Tensor& targets,
                                     int64_t ignore_index, Reduction reduction, double z_loss) {
  const Tensor ignored = targets == ignore_index;
  const Tensor logits = masked_fill(input, ignored.unsqueeze(-1), 0);  // NaN there reaches nobody
  const Tensor ids = masked_fill(targets, ignored, 0).unsqueeze(-1);
  const Tensor log_ps = log_softmax(logits), log_p = gather(log_ps, -1, ids).squeeze(-1);
  Tensor losses = masked_fill(-log_p, ignored, 0);
  if (z_loss != 0) {  // log sum exp x = x - log p of any class. Its slope stays p if x is large
    const auto [top, place] = max(logits, -1, true);
    const Tensor lse = (top - gather(log_ps, -1, place)).squeeze(-1);
    losses = losses + z_loss * masked_fill(square(lse), ignored, 0);
  }
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? sum(losses) : sum(losses) / sum(logical_not(ignored));
}

Tensor cross_entropy(const Tensor& input, const Tensor& targets, NumberOf<int64_t> ignore_index,
                     Reduction reduction, double z_loss) {
  check_defined("cross_entropy", input, targets);
  INK_CHECK(input.dim() >= 1, "cross_entropy: logits need at least one dimension, got a scalar");
  Shape expected = input.shape();
  expected.erase(input.dim() - 1);
  INK_CHECK(targets.shape() == expected, "cross_entropy: expected targets of shape ", expected,
            " for logits ", input.shape(), ", got ", targets.shape(),
            classes_hint(input.shape(), targets.shape()));
  check_ids("cross_entropy", "target", targets, input.size(-1), "classes", ignore_index);
  const DType dtype = input.dtype() == f64 ? f64 : f32;  // of the loss
  if (composed())
    return cross_entropy_composed(input.to(dtype), targets, ignore_index, reduction, z_loss);
  const Tensor logits = input.contiguous(), ids = targets.contiguous();
  const Options options(dtype, input.device());
  Tensor loss = empty(reduction == Reduction::none ? targets.shape() : Shape(), options);
  Tensor scale = reduction == Reduction::mean ? empty({}, options) : Tensor();
  Tensor dlogits = grad_enabled() && input.requires_grad() ? empty_like(logits) : Tensor();
  if (scale.defined()) kernel::target_scale(scale, ids, ignore_index);
  kernel::cross_entropy(loss, dlogits, logits, ids, scale, ignore_index, z_loss);
  const auto vjp = [=, x = Saved::input(logits), targets = Saved::input(ids, "its targets"),
                    dx = Saved::input(dlogits)](const Tensor& dy) -> Grads {
    if (grad_enabled()) {
      const auto definition = [&](auto& in) {
        return cross_entropy_composed(in[0].to(dtype), *targets, ignore_index, reduction, z_loss);
      };
      return differentiate(definition, {*x}, dy);
    }
    if (is_one(dy)) return {*dx};
    return {(*dx * dy.unsqueeze(-1)).to((*dx).dtype())};
  };
  return record("cross_entropy", {logits}, loss, vjp);
}

}  // namespace ink
