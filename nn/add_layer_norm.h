// add_layer_norm and add_rms_norm with a norm's parameters: they add and normalise in one pass.
#pragma once

#include <utility>

#include "autograd/fused_ops.h"
#include "nn/layer_norm.h"
#include "nn/rms_norm.h"

namespace ink {

/// What a part of a block adds to the residual stream, before its dropout.
struct Branch {
  Tensor value;
  double dropout_p;

  Branch(const Tensor& x = {}, double p = 0) : value(x), dropout_p(p) {}
  Tensor dropped() const { return dropout(value, dropout_p); }
  /// x + dropped(); x if there is no branch.
  Tensor added_to(const Tensor& x) const { return value.defined() ? x + dropped() : x; }
};

/// {s, norm(s)} with s = x + branch.dropped(), in one pass where norm normalises the last dimension
/// alone. If there is no branch, there is nothing to add.
inline std::pair<Tensor, Tensor> add_layer_norm(const Tensor& x, const Branch& branch,
                                                const LayerNorm& norm) {
  if (!branch.value.defined()) return {x, norm(x)};
  if (norm.normalized_shape.size() == 1)
    return add_layer_norm(x, branch.value, norm.weight, norm.bias, norm.eps, branch.dropout_p);
  const Tensor sum = branch.added_to(x);
  return {sum, norm(sum)};
}

/// The same for an RMSNorm.
inline std::pair<Tensor, Tensor> add_rms_norm(const Tensor& x, const Branch& branch,
                                              const RMSNorm& norm) {
  if (!branch.value.defined()) return {x, norm(x)};
  return add_rms_norm(x, branch.value, norm.weight, norm.eps, branch.dropout_p);
}

}  // namespace ink
