// CausalSelfAttention: the part of a block in which a position attends to those before it.
#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/add_layer_norm.h"
#include "nn/config.h"
#include "nn/dropout.h"
#include "nn/kv_cache.h"
#include "nn/linear.h"

namespace ink {

/// x (B, T, C) -> (B, T, C). For position i, each of n_head heads, C / n_head wide, mixes the
/// values of positions 0..i with the weights softmax(q k^T / sqrt(C / n_head)). Vaswani et al.
/// 2017, section 3.2. In training, dropout acts on the weights and on the result, as in nanoGPT.
struct CausalSelfAttention : Module {
  int64_t n_head = 1;
  Linear c_attn;  // q, k and v side by side: (3 C, C)
  Linear c_proj;
  double attn_dropout = 0;  // of the weights
  Dropout resid_dropout;

  CausalSelfAttention() = default;
  explicit CausalSelfAttention(const GPTConfig& c)
      : n_head(c.n_head),
        c_attn(c.n_embd, 3 * c.n_embd, c.bias),
        c_proj(c.n_embd, c.n_embd, c.bias),
        attn_dropout(c.dropout),
        resid_dropout(c.dropout) {}

  /// With a cache, x holds the tokens after those that it remembers.
  Tensor operator()(const Tensor& x, KVCache* cache = nullptr) const {
    return branch(x, cache).dropped();
  }
  /// The same before resid_dropout.
  Branch branch(const Tensor& x, KVCache* cache = nullptr) const {
    auto [q, k, v] = heads(x);
    AttentionOptions options{.dropout_p = training ? attn_dropout : 0,
                             .is_causal = !cache,
                             .causal_lower_right = cache != nullptr};
    prepare_scores(q, k, options, cache ? cache->size() : 0);
    q = q.to(v.dtype()), k = k.to(v.dtype());  // a step in f32 under Autocast
    if (cache) std::tie(k, v) = cache->append(k, v);
    const Tensor y = scaled_dot_product_attention(q, k, v, options);
    return {c_proj(y.transpose(1, 2).reshape(x.shape())), resid_dropout.rate()};
  }

  /// The weights with which it mixes values in evaluation: x (B, T, C) -> (B, n_head, T, T).
  Tensor weights(const Tensor& x) const {
    auto [q, k, v] = heads(x);
    AttentionOptions options{.is_causal = true};
    prepare_scores(q, k, options, 0);
    return attention_weights(q, k, options);
  }

  /// prepare_scores(q, k, options, start): the step that a derived class overrides. It may change q
  /// and k (B, n_head, T, d), which belong to the tokens at positions start .. start + T - 1, and
  /// the options. Rotary positions turn q and k. ALiBi adds options.attn_mask to the scores, which
  /// are (B, n_head, T, start + T). With a cache, start is its size, and the cache holds the
  /// earlier keys as this step left them.
  virtual void prepare_scores(Tensor&, Tensor&, AttentionOptions&, int64_t) const {}

  INK_FIELDS(c_attn, c_proj, resid_dropout)

 private:
  struct Heads {
    Tensor q, k, v;  // (B, n_head, T, C / n_head): views of one (B, T, 3 C), read in place
  };
  Heads heads(const Tensor& x) const {
    const std::vector<Tensor> qkv = split(c_attn(x), x.size(2), 2);
    const auto head = [&](const Tensor& t) {
      return t.view({t.size(0), t.size(1), n_head, t.size(2) / n_head}).transpose(1, 2);
    };
    return {head(qkv[0]), head(qkv[1]), head(qkv[2])};
  }
};

/// Makes the attention of a block.
using MakeAttention = std::function<std::unique_ptr<CausalSelfAttention>(const GPTConfig&)>;
/// ... as an Attention(config), which is CausalSelfAttention or extends it.
template <class Attention>
std::unique_ptr<CausalSelfAttention> make_attention(const GPTConfig& config) {
  auto made = std::make_unique<Attention>(config);
  detail::check_own_fields(*made, sizeof(Attention));
  return made;
}

}  // namespace ink
