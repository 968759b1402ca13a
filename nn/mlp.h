// MLP: the part of a block that treats each position by itself.
#pragma once

#include "autograd/fused_ops.h"
#include "nn/activation.h"
#include "nn/add_layer_norm.h"
#include "nn/config.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace ink {

/// x (..., C) -> (..., C) through 4 C units.
struct MLP : Module {
  Linear c_fc;
  GELU gelu;
  Linear c_proj;
  Dropout drop;

  MLP() = default;
  explicit MLP(const GPTConfig& c)
      : c_fc(c.n_embd, 4 * c.n_embd, c.bias),
        gelu(Gelu::tanh),
        c_proj(4 * c.n_embd, c.n_embd, c.bias),
        drop(c.dropout) {}

  /// drop(c_proj(gelu(c_fc(x)))). With Gelu::tanh it is ink::mlp, in fewer passes.
  Tensor operator()(const Tensor& x) const { return branch(x).dropped(); }
  /// The same before drop.
  Branch branch(const Tensor& x) const {
    if (gelu.approximate != Gelu::tanh) return {c_proj(gelu(c_fc(x))), drop.rate()};
    return {mlp(x, c_fc.weight, c_fc.bias, c_proj.weight, c_proj.bias), drop.rate()};
  }

  INK_FIELDS(c_fc, gelu, c_proj, drop)
};

}  // namespace ink
