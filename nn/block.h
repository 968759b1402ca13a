// Block: one layer of a GPT.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "nn/add_layer_norm.h"
#include "nn/attention.h"
#include "nn/mlp.h"

namespace ink {

/// x (B, T, C) -> (B, T, C). Norms come before attention and MLP, so that no norm acts on the
/// residual stream x itself. Radford et al. 2019, section 2.3.
struct Block : Module {
  LayerNorm ln_1;
  std::unique_ptr<CausalSelfAttention> attn;  // or one derived from it
  LayerNorm ln_2;
  MLP mlp;

  Block() = default;
  explicit Block(const GPTConfig& c,
                 const MakeAttention& attention = make_attention<CausalSelfAttention>)
      : ln_1(c.n_embd, c.bias), attn(attention(c)), ln_2(c.n_embd, c.bias), mlp(c) {}

  Tensor operator()(Tensor x, KVCache* cache = nullptr) const {
    Branch branch;
    std::tie(x, branch) = (*this)(x, {}, cache);
    return x + branch.dropped();
  }

  /// The same for blocks in a row. Takes x and the branch that is still to be added to it, and
  /// returns the next two. So each norm drops, adds and normalises in one pass.
  std::pair<Tensor, Branch> operator()(Tensor x, const Branch& branch, KVCache* cache) const {
    Tensor normed;
    std::tie(x, normed) = add_layer_norm(x, branch, ln_1);
    std::tie(x, normed) = add_layer_norm(x, attn->branch(normed, cache), ln_2);
    return {x, mlp.branch(normed)};
  }

  INK_FIELDS(ln_1, attn, ln_2, mlp)
};

}  // namespace ink
