// SelfAttention: one head, taken apart into steps that can be replaced one by one.
//
// It is for learning and for experiments: it computes the whole (T, S) matrix of weights and
// returns it. MultiheadAttention and CausalSelfAttention train faster.
#pragma once

#include <cmath>
#include <tuple>

#include "autograd/fused_ops.h"
#include "nn/kv_cache.h"
#include "nn/linear.h"

namespace ink {

/// x (B, T, E) -> output (B, T, E). Linear layers make queries, keys and values. The softmax of a
/// query's logits over all keys gives the weights with which it mixes the values. A last linear
/// layer follows. It is causal: token i sees tokens 0 .. i. Vaswani et al. 2017, eq. 1.
///
/// Derive and override a step to change it:
///   struct Bidirectional : SelfAttention {
///     using SelfAttention::SelfAttention;
///     Tensor causal_mask(const Tensor& logits) const override { return logits; }
///   };
struct SelfAttention : Module {
  Linear query, key, value, output;  // E -> E, drawn in this order

  SelfAttention() = default;
  explicit SelfAttention(int64_t embed_dim, bool bias = true)
      : query(embed_dim, embed_dim, bias),
        key(embed_dim, embed_dim, bias),
        value(embed_dim, embed_dim, bias),
        output(embed_dim, embed_dim, bias) {}

  struct Projections {
    Tensor q, k, v;  // (B, T, E)
  };
  struct Result {
    Tensor output;      // (B, T, E)
    Tensor weights;     // (B, T, S)
    Tensor key, value;  // (B, S, E): with a cache, those of all tokens so far
  };

  /// mask (B, S) is 0 (or false) where a token is padding, to which no token attends.
  /// With a cache, x holds the tokens after those in the cache, and S counts all.
  Result operator()(const Tensor& x, const Tensor& mask = {}, KVCache* cache = nullptr) const {
    INK_CHECK(x.dim() == 3 && x.size(2) == query.in_features, "self_attention: expected (B, T, ",
              query.in_features, "), got ", x.shape());
    auto [q, k, v] = projections(x);
    if (cache) std::tie(k, v) = cache->append(k, v);
    Tensor scores = causal_mask(logits(q, k));
    if (mask.defined()) scores = attention_mask(scores, mask);
    const Tensor w = weights(scores);
    return {mix(w, v), w, k, v};
  }

  // ---- the steps, in order
  virtual Projections projections(const Tensor& x) const { return {query(x), key(x), value(x)}; }
  /// q k^T / sqrt(E): (B, T, S).
  virtual Tensor logits(const Tensor& q, const Tensor& k) const {
    return matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(-1)));
  }
  /// -inf where the key comes after the query; the T queries are the last of the S tokens.
  virtual Tensor causal_mask(const Tensor& logits) const {
    const int64_t T = logits.size(-2), S = logits.size(-1);
    const Tensor later = triu(ones({T, S}, {f32, logits.device()}), S - T + 1) > 0;
    return masked_fill(logits, later, -inf);
  }
  /// -inf in the columns of padding. Called only if there is an attention mask.
  virtual Tensor attention_mask(const Tensor& logits, const Tensor& mask) const {
    INK_CHECK(mask.dim() == 2 && mask.size(0) == logits.size(0) && mask.size(1) == logits.size(-1),
              "self_attention: expected an attention mask (", logits.size(0), ", ", logits.size(-1),
              "), got ", mask.shape());
    return masked_fill(logits, logical_not(mask).unsqueeze(1), -inf);
  }
  /// softmax over the keys. A row of -inf alone gives zeros, and no gradient (ImitateTorch: NaN).
  virtual Tensor weights(const Tensor& logits) const {
    if (context().imitate_torch) return softmax(logits);
    const Tensor nothing = all(logits == -inf, {-1}, true);  // nothing to attend to
    return masked_fill(softmax(masked_fill(logits, nothing, 0)), nothing, 0);
  }
  /// The weighted sums of the values, through the last layer.
  virtual Tensor mix(const Tensor& weights, const Tensor& v) const {
    return output(matmul(weights, v));
  }

  INK_FIELDS(query, key, value, output)
};

}  // namespace ink
