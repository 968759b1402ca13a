#include "nn/batch_norm.h"

namespace ink {

BatchNorm1d::BatchNorm1d(int64_t channels, double epsilon, double momentum_)
    : eps(epsilon),
      momentum(momentum_),
      weight(ones({detail::checked_size("BatchNorm1d", channels)})),
      bias(zeros({channels})),
      running_mean(zeros({channels})),
      running_var(ones({channels})),
      num_batches_tracked(zeros({}, i64)) {}

Tensor BatchNorm1d::operator()(const Tensor& input) const {
  const int64_t channels = weight.size(0);
  INK_CHECK((input.dim() == 2 || input.dim() == 3) && input.size(1) == channels,
            "batch_norm: expected (N, ", channels, ") or (N, ", channels, ", L), got ",
            input.shape());
  if (input.dtype() == bf16) return (*this)(input.to(f32)).to(bf16);  // rounded once, at the end
  const Tensor& x = input;
  // Per-channel vectors broadcast against x as (C,) or (C, 1).
  const auto across = [&](const Tensor& c) { return x.dim() == 3 ? c.unsqueeze(-1) : c; };
  const auto scaled = [&](const Tensor& centered, const Tensor& var) {
    return centered * across(rsqrt(var + eps) * weight) + across(bias);
  };
  if (!training) return scaled(x - across(running_mean), running_var);

  INK_CHECK(context().random.rows == 0,
            "batch_norm: a part of a batch lacks the statistics of the whole; take one part "
            "(batch_parts = 1)");
  const int64_t count = channels ? x.numel() / channels : 0;
  INK_CHECK(count > 1, "batch_norm: expected more than one value per channel in training, got ",
            x.shape());
  const Shape dims = x.dim() == 3 ? Shape{0, 2} : Shape{0};
  const Tensor batch_mean = mean(x, dims);
  const Tensor centered = x - across(batch_mean);
  const Tensor batch_var = mean(centered * centered, dims);
  track(batch_mean, batch_var, count);
  return scaled(centered, batch_var);
}

void BatchNorm1d::track(const Tensor& batch_mean, const Tensor& batch_var, int64_t count) const {
  const NoGrad no_grad;
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  Tensor running = running_mean, spread = running_var, batches = num_batches_tracked;
  running.mul_(1 - momentum).add_(batch_mean.detach() * momentum);
  spread.mul_(1 - momentum).add_(batch_var.detach() * (momentum * unbiased));
  batches.add_(1);
}

}  // namespace ink
