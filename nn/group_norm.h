// GroupNorm: brings groups of channels to mean 0 and variance 1, then scales and shifts each
// channel.
#pragma once

#include <string>

#include "autograd/more_ops.h"
#include "nn/module.h"

namespace ink {

/// y = (x - mean) / sqrt(var + eps) * weight + bias; x (N, C, ...). mean and (biased) var are taken
/// over each sample's groups of C / num_groups channels. Wu and He 2018.
struct GroupNorm : Module {
  int64_t num_groups = 1, num_channels = 0;
  double eps = 1e-5;
  Parameter weight, bias;  // (C,), or undefined

  GroupNorm() = default;
  GroupNorm(int64_t groups, int64_t channels, double epsilon = 1e-5, bool affine = true)
      : num_groups(groups), num_channels(channels), eps(epsilon) {
    INK_CHECK(groups > 0 && detail::checked_size("GroupNorm", channels) % groups == 0,
              "GroupNorm: expected groups of one size, got ", channels, " channels for ", groups,
              " groups");
    if (!affine) return;
    weight = ones({channels});
    bias = zeros({channels});
  }

  Tensor operator()(const Tensor& x) const { return group_norm(x, num_groups, weight, bias, eps); }

  std::string extra_repr() const override {
    return detail::text(num_groups, ", ", num_channels, ", eps=", eps,
                        ", affine=", weight.defined() ? "True" : "False");
  }
  INK_FIELDS(weight, bias)
};

}  // namespace ink
