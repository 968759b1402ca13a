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
///
/// With fewer heads of keys and values (n_kv_head), each serves n_head / n_kv_head heads of queries
/// in a row: grouped queries (Ainslie et al. 2023), or with one alone, multi-query attention. This
/// is the attention of such a GPT, for GPT(config, make_attention<Grouped>):
///   struct Grouped : CausalSelfAttention {
///     explicit Grouped(const GPTConfig& c) : CausalSelfAttention(c, c.n_head / 2) {}
///   };
struct CausalSelfAttention : Module {
  int64_t n_head = 1, n_kv_head = 1;
  Linear c_attn;  // q, k and v side by side: (C + 2 C n_kv_head / n_head, C)
  Linear c_proj;
  double attn_dropout = 0;  // of the weights
  Dropout resid_dropout;

  CausalSelfAttention() = default;
  /// n_kv_head: 0 is n_head.
  explicit CausalSelfAttention(const GPTConfig& c, int64_t kv_heads = 0)
      : n_head(c.n_head),
        n_kv_head(checked_groups(c, kv_heads)),
        c_attn(c.n_embd, (n_head + 2 * n_kv_head) * c.head_width(), c.bias),
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
    return {c_proj(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1})), resid_dropout.rate()};
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

  struct Heads {
    Tensor q, k, v;  // (B, n_head or n_kv_head, T, d): views of one tensor, read in place
  };
  /// Queries, keys and values of x (B, T, C): a step to override, too.
  virtual Heads heads(const Tensor& x) const {
    const int64_t d = c_proj.in_features / n_head;
    const std::vector<Tensor> qkv = split(c_attn(x), {n_head * d, n_kv_head * d, n_kv_head * d}, 2);
    const auto head = [&](const Tensor& t) {
      return t.view({t.size(0), t.size(1), t.size(2) / d, d}).transpose(1, 2);
    };
    return {head(qkv[0]), head(qkv[1]), head(qkv[2])};
  }

  INK_FIELDS(c_attn, c_proj, resid_dropout)

 private:
  static int64_t checked_groups(const GPTConfig& c, int64_t kv_heads) {
    INK_CHECK(kv_heads >= 0 && (kv_heads == 0 || c.n_head % kv_heads == 0),
              "attention: expected n_head to be a multiple of n_kv_head, got ", c.n_head, " and ",
              kv_heads);
    return kv_heads == 0 ? c.n_head : kv_heads;
  }
};

/// Makes the attention of a block: make_attention<MyAttention> makes it as a MyAttention(config),
/// which is CausalSelfAttention or extends it.
using MakeAttention = std::function<std::unique_ptr<CausalSelfAttention>(const GPTConfig&)>;
template <class Made>
std::unique_ptr<CausalSelfAttention> make_attention(const GPTConfig& config) {
  return detail::make_with_fields<Made>(config);
}

}  // namespace ink
