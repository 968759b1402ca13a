// RMSNorm: brings every vector to mean square 1, then scales it.
#pragma once

#include <string>

#include "autograd/fused_ops.h"
#include "nn/module.h"

namespace ink {

/// y = x / sqrt(mean x^2 + eps) * weight over the last dimension of x (..., n).
/// Zhang and Sennrich 2019. PyTorch's eps, if none is given, is the dtype's epsilon: 1.2e-7 of f32.
struct RMSNorm : Module {
  double eps = 1e-6;
  Parameter weight;  // (n,)

  RMSNorm() = default;
  explicit RMSNorm(int64_t n, double epsilon = 1e-6)
      : eps(epsilon), weight(ones({detail::checked_size("RMSNorm", n)})) {}

  Tensor operator()(const Tensor& x) const {
    INK_CHECK(weight.defined(), "RMSNorm: was never given a size: assign RMSNorm(n)");
    return rms_norm(x, weight, eps);
  }

  std::string extra_repr() const override { return detail::text(weight.shape(), ", eps=", eps); }
  INK_FIELDS(weight)
};

}  // namespace ink
