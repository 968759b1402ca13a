// add_layer_norm with the parameters of a LayerNorm: adds and normalises in one pass.
#pragma once

#include <utility>

#include "autograd/fused_ops.h"
#include "nn/layer_norm.h"

namespace ink {

/// {x + branch, norm(x + branch)}, in one pass where norm normalises the last dimension alone. If
/// branch is undefined, there is nothing to add.
inline std::pair<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& branch,
                                                const LayerNorm& norm) {
  if (!branch.defined()) return {x, norm(x)};
  if (norm.normalized_shape.size() == 1)
    return add_layer_norm(x, branch, norm.weight, norm.bias, norm.eps);
  const Tensor sum = x + branch;
  return {sum, norm(sum)};
}

}  // namespace ink
