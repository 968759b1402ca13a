// Block: one layer of a GPT.
#pragma once

#include <functional>
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
  std::unique_ptr<MLP> mlp;  // likewise

  Block() = default;  // for one of your own, which has none of these
  explicit Block(const GPTConfig& c,
                 const MakeAttention& attention = make_attention<CausalSelfAttention>,
                 const MakeMLP& make = make_mlp<MLP>)
      : ln_1(c.n_embd, c.bias), attn(attention(c)), ln_2(c.n_embd, c.bias), mlp(make(c)) {}

  Tensor operator()(const Tensor& x, KVCache* cache = nullptr) const {
    const auto [sum, branch] = (*this)(x, {}, cache);
    return branch.added_to(sum);
  }

  /// The same for blocks in a row, and what a block of your own overrides. Takes x and the branch
  /// that is still to be added to it (branch.added_to(x)), and returns the next two. So each norm
  /// drops, adds and normalises in one pass.
  virtual std::pair<Tensor, Branch> operator()(Tensor x, const Branch& branch,
                                               KVCache* cache) const {
    Tensor normed;
    std::tie(x, normed) = add_layer_norm(x, branch, ln_1);
    std::tie(x, normed) = add_layer_norm(x, attn->branch(normed, cache), ln_2);
    return {x, mlp->branch(normed)};
  }

  /// The weights of its attention: x (B, T, C) -> (B, n_head, T, T).
  virtual Tensor attention_weights(const Tensor& x) const {
    INK_CHECK(attn,
              "attention_weights: a block of this model shows none; override "
              "Block::attention_weights");
    return attn->weights(ln_1(x));
  }

  INK_FIELDS(ln_1, attn, ln_2, mlp)
};

/// Makes a block of a GPT: make_block<MyBlock> makes it as a MyBlock(config), and a MyBlock extends
/// Block.
using MakeBlock = std::function<std::unique_ptr<Block>(const GPTConfig&)>;
template <class Made>
std::unique_ptr<Block> make_block(const GPTConfig& config) {
  return detail::make_with_fields<Made>(config);
}

}  // namespace ink
