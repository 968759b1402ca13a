// CausalSelfAttention: the part of a block where a position looks at those before it.
#pragma once

#include <tuple>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/config.h"
#include "nn/dropout.h"
#include "nn/kv_cache.h"
#include "nn/linear.h"

namespace ink {

/// x (B, T, C) -> (B, T, C): each of n_head heads, C / n_head wide, mixes the values of positions
/// 0..i for position i, weighted by softmax(q k^T / sqrt(C / n_head)). Vaswani et al. 2017,
/// section 3.2. In training, dropout acts on the weights and on the result, as nanoGPT's does.
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
    const std::vector<Tensor> qkv = split(c_attn(x), x.size(2), 2);  // views, read in place
    Tensor k = heads(qkv[1]), v = heads(qkv[2]);
    if (cache) std::tie(k, v) = cache->append(k, v);
    const Tensor y = scaled_dot_product_attention(heads(qkv[0]), k, v,
                                                  {.dropout_p = training ? attn_dropout : 0,
                                                   .is_causal = !cache,
                                                   .causal_lower_right = cache != nullptr});
    return resid_dropout(c_proj(y.transpose(1, 2).reshape(x.shape())));
  }

  /// The weights by which it mixes values in evaluation: x (B, T, C) -> (B, n_head, T, T).
  Tensor weights(const Tensor& x) const {
    const std::vector<Tensor> qkv = split(c_attn(x), x.size(2), 2);
    return attention_weights(heads(qkv[0]), heads(qkv[1]), {.is_causal = true});
  }

  INK_FIELDS(c_attn, c_proj, resid_dropout)

 private:
  Tensor heads(const Tensor& t) const {  // (B, T, C) as (B, n_head, T, C / n_head)
    return t.view({t.size(0), t.size(1), n_head, t.size(2) / n_head}).transpose(1, 2);
  }
};

}  // namespace ink
