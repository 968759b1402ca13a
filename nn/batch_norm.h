// BatchNorm1d: brings every channel to mean 0 and variance 1 over the batch.
#pragma once

#include <string>

#include "nn/module.h"

namespace ink {

/// y = (x - mean) / sqrt(var + eps) * weight + bias per channel; x (N, C) or (N, C, L). In
/// training, mean and (biased) var are those of the batch, and the running ones move towards them
/// by `momentum` (the running var towards the unbiased estimate). In evaluation the running ones
/// are used. Under checkpoint() the running ones move twice, because it runs the layer twice. Ioffe
/// and Szegedy 2015, algorithms 1 and 2.
struct BatchNorm1d : Module {
  double eps = 1e-5, momentum = 0.1;
  Parameter weight, bias;            // (C,)
  Buffer running_mean, running_var;  // (C,)
  Buffer num_batches_tracked;        // () i64

  BatchNorm1d() = default;
  explicit BatchNorm1d(int64_t channels, double epsilon = 1e-5, double momentum_ = 0.1);

  Tensor operator()(const Tensor& x) const;

  std::string extra_repr() const override {
    return detail::text(weight.size(0), ", eps=", eps, ", momentum=", momentum);
  }
  INK_FIELDS(weight, bias, running_mean, running_var, num_batches_tracked)

 private:
  void track(const Tensor& rows) const;  // (C, n)
};

}  // namespace ink
