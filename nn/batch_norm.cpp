#include "nn/batch_norm.h"

#include "autograd/autocast.h"
#include "autograd/more_ops.h"

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
  const int64_t count = channels ? x.numel() / channels : 0;
  if (training && count == 0) Tensor(num_batches_tracked).add_(1);  // which has no statistics
  if (!training || count == 0)
    return (x - across(running_mean)) * across(rsqrt(running_var + eps) * weight) + across(bias);

  INK_CHECK(context().random.rows == 0,
            "batch_norm: a part of a batch lacks the statistics of the whole; take one part "
            "(batch_parts = 1)");
  INK_CHECK(count > 1, "batch_norm: expected more than one value per channel in training, got ",
            x.shape());
  // Each channel is a row of a layer_norm without weight and bias, which follow by channel.
  const Tensor by_channel = x.transpose(0, 1), rows = by_channel.reshape({channels, count});
  track(rows.detach());
  const Autocast off(f32);
  const Tensor y = layer_norm(rows, Tensor(), Tensor(), eps).view(by_channel.shape());
  return y.transpose(0, 1) * across(weight) + across(bias);
}

void BatchNorm1d::track(const Tensor& rows) const {
  const NoGrad no_grad;
  Tensor running = running_mean, spread = running_var, batches = num_batches_tracked;
  running.mul_(1 - momentum).add_(mean(rows, {1}) * momentum);
  spread.mul_(1 - momentum).add_(var(rows, {1}) * momentum);
  batches.add_(1);
}

}  // namespace ink
