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

/// 1 / (1 + exp(-x))
struct Sigmoid : Module {
  Tensor operator()(const Tensor& x) const { return sigmoid(x); }
};

/// x, or negative_slope x where x < 0
struct LeakyReLU : Module {
  double negative_slope;

  explicit LeakyReLU(double slope = 0.01) : negative_slope(slope) {}

  Tensor operator()(const Tensor& x) const { return leaky_relu(x, negative_slope); }

  std::string extra_repr() const override {
    return detail::text("negative_slope=", negative_slope);
  }
};

/// x, or alpha (exp(x) - 1) where x < 0
struct ELU : Module {
  double alpha;

  explicit ELU(double alpha_ = 1) : alpha(alpha_) {}

  Tensor operator()(const Tensor& x) const { return elu(x, alpha); }

  std::string extra_repr() const override { return detail::text("alpha=", alpha); }
};

/// log(1 + exp(beta x)) / beta, and x where beta x > threshold
struct Softplus : Module {
  double beta, threshold;

  explicit Softplus(double beta_ = 1, double threshold_ = 20)
      : beta(beta_), threshold(threshold_) {}

  Tensor operator()(const Tensor& x) const { return softplus(x, beta, threshold); }

  std::string extra_repr() const override {
    return detail::text("beta=", beta, ", threshold=", threshold);
  }
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
