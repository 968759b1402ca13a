// Block: one layer of a GPT.
#pragma once

#include "nn/attention.h"
#include "nn/layer_norm.h"
#include "nn/mlp.h"

namespace ink {

/// x (B, T, C) -> (B, T, C). Norms come before what they feed, so that the residual stream x runs
/// through untouched. Radford et al. 2019, section 2.3.
struct Block : Module {
  LayerNorm ln_1;
  CausalSelfAttention attn;
  LayerNorm ln_2;
  MLP mlp;

  explicit Block(const GPTConfig& c)
      : ln_1(c.n_embd, c.bias), attn(c), ln_2(c.n_embd, c.bias), mlp(c) {}

  Tensor operator()(Tensor x, KVCache* cache = nullptr) const {
    x = x + attn(ln_1(x), cache);
    return x + mlp(ln_2(x));
  }

  INK_FIELDS(ln_1, attn, ln_2, mlp)
};

}  // namespace ink
