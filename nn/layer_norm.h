// LayerNorm: brings every vector to mean 0 and variance 1, then scales and shifts it.
//
// The layer to copy when you write your own. A layer is its numbers, its parameters, a constructor
// that gives them their first values, the call, and INK_FIELDS. Check it in one line:
//   gradcheck_module(layer, randn({2, 3, 8}))      (nn/gradcheck_module.h)
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "autograd/more_ops.h"
#include "nn/module.h"

namespace ink {

/// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions of x
/// (..., normalized_shape), var biased. Ba, Kiros and Hinton 2016.
struct LayerNorm : Module {
  Shape normalized_shape;
  double eps = 1e-5;
  Parameter weight;  // (normalized_shape), or undefined
  Parameter bias;    // (normalized_shape), or undefined

  LayerNorm() = default;  // to be assigned later, as for every layer
  explicit LayerNorm(const Shape& shape, double epsilon = 1e-5, bool elementwise_affine = true,
                     bool with_bias = true)
      : normalized_shape(shape), eps(epsilon) {
    INK_CHECK(!shape.empty(), "LayerNorm: expected at least one size, got ", shape);
    for (int64_t n : shape) detail::checked_size("LayerNorm", n);
    if (elementwise_affine) weight = ones(shape);
    if (elementwise_affine && with_bias) bias = zeros(shape);
  }
  /// LayerNorm(n, false): without a bias, as in nanoGPT.
  template <std::same_as<bool> Bool>
  LayerNorm(const Shape& shape, Bool with_bias) : LayerNorm(shape, 1e-5, true, with_bias) {}
  /// LayerNorm({3, 4}): braces alone could also mean a LayerNorm.
  template <size_t N, class... Rest>
  explicit LayerNorm(const int64_t (&shape)[N], Rest... rest)
      : LayerNorm(Shape(std::vector<int64_t>(shape, shape + N)), rest...) {}

  Tensor operator()(const Tensor& x) const {
    return layer_norm(x, normalized_shape, weight, bias, eps);
  }

  std::string extra_repr() const override {
    return detail::text(normalized_shape, ", eps=", eps,
                        weight.defined() ? "" : ", elementwise_affine=False",
                        weight.defined() && !bias.defined() ? ", bias=False" : "");
  }
  INK_FIELDS(weight, bias)
};

}  // namespace ink
