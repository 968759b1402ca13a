// LayerNorm: every vector to mean 0 and variance 1, then scaled and shifted.
//
// The layer to copy when you write your own. A layer is its numbers, its parameters, a constructor
// that gives them their first values, the call, and INK_FIELDS. Check it in one line:
//   gradcheck_module(layer, randn({2, 3, 8}))      (nn/gradcheck_module.h)
#pragma once

#include <string>
#include <utility>

#include "autograd/fused_ops.h"
#include "nn/module.h"

namespace ink {

/// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension of x (..., n), var
/// biased. Ba, Kiros and Hinton 2016.
struct LayerNorm : Module {
  double eps;
  Parameter weight;  // (n,)
  Parameter bias;    // (n,), or undefined

  explicit LayerNorm(int64_t n, bool with_bias = true, double epsilon = 1e-5)
      : eps(epsilon), weight(ones({n})), bias(with_bias ? zeros({n}) : Tensor()) {}

  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }
  /// {x + branch, y of that}, in one pass; branch may be undefined, nothing to add.
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& branch) const {
    if (!branch.defined()) return {x, (*this)(x)};
    return add_layer_norm(x, branch, weight, bias, eps);
  }

  std::string extra_repr() const override {
    return detail::text(weight.shape(), ", eps=", eps, bias.defined() ? "" : ", bias=False");
  }
  INK_FIELDS(weight, bias)
};

}  // namespace ink
