// Activations as modules, for Sequential.
#pragma once

#include <string>

#include "nn/module.h"

namespace ink {

/// max(x, 0)
struct ReLU : Module {
  Tensor operator()(const Tensor& x) const { return relu(x); }
};

struct Tanh : Module {
  Tensor operator()(const Tensor& x) const { return tanh(x); }
};

/// x sigmoid(x)
struct SiLU : Module {
  Tensor operator()(const Tensor& x) const { return silu(x); }
};

/// x Phi(x), exactly or by its tanh approximation, which is GPT-2's.
struct GELU : Module {
  Gelu approximate;

  explicit GELU(Gelu form = Gelu::erf) : approximate(form) {}

  Tensor operator()(const Tensor& x) const { return gelu(x, approximate); }

  std::string extra_repr() const override {
    return approximate == Gelu::tanh ? "approximate='tanh'" : "approximate='none'";
  }
};

}  // namespace ink
