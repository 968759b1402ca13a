// Linear: y = x W^T + b.
#pragma once

#include <cmath>
#include <string>

#include "autograd/fused_ops.h"
#include "nn/init.h"
#include "nn/module.h"

namespace ink {

/// x (..., in) -> (..., out). Weight and bias start uniform in +-1 / sqrt(in), as in PyTorch.
struct Linear : Module {
  int64_t in_features = 0, out_features = 0;
  Parameter weight;  // (out, in)
  Parameter bias;    // (out,), or undefined

  Linear() = default;
  Linear(int64_t in, int64_t out, bool with_bias = true) : in_features(in), out_features(out) {
    INK_CHECK(in >= 0 && out >= 0, "Linear: expected sizes of 0 or more, got ", in, " and ", out);
    weight = empty({out, in});
    init::kaiming_uniform_(weight, std::sqrt(5.0));
    if (!with_bias) return;
    bias = empty({out});
    const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
    init::uniform_(bias, -bound, bound);
  }

  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }

  std::string extra_repr() const override {
    return "in_features=" + std::to_string(in_features) +
           ", out_features=" + std::to_string(out_features) +
           ", bias=" + (bias.defined() ? "True" : "False");
  }
  INK_FIELDS(weight, bias)
};

}  // namespace ink
