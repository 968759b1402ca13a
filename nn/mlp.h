// MLP: the part of a block that treats each position by itself.
#pragma once

#include <functional>
#include <memory>

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

  MLP() = default;  // for one of your own, which makes of these layers what it has
  explicit MLP(const GPTConfig& c)
      : c_fc(c.n_embd, 4 * c.n_embd, c.bias),
        gelu(Gelu::tanh),
        c_proj(4 * c.n_embd, c.n_embd, c.bias),
        drop(c.dropout) {}

  /// drop(c_proj(gelu(c_fc(x)))). With Gelu::tanh it is ink::mlp, in fewer passes.
  Tensor operator()(const Tensor& x) const { return branch(x).dropped(); }
  /// The same before drop, and what an MLP of your own overrides.
  virtual Branch branch(const Tensor& x) const {
    if (gelu.approximate != Gelu::tanh) return {c_proj(gelu(c_fc(x))), drop.rate()};
    return {mlp(x, c_fc.weight, c_fc.bias, c_proj.weight, c_proj.bias), drop.rate()};
  }

  INK_FIELDS(c_fc, gelu, c_proj, drop)
};

/// Makes the MLP of a block: make_mlp<MyMLP> makes it as a MyMLP(config), and a MyMLP extends MLP.
using MakeMLP = std::function<std::unique_ptr<MLP>(const GPTConfig&)>;
template <class Made>
std::unique_ptr<MLP> make_mlp(const GPTConfig& config) {
  return detail::make_with_fields<Made>(config);
}

}  // namespace ink
