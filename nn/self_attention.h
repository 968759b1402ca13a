// SelfAttention: one head, taken apart into steps that can be replaced one by one.
//
// It is for learning and for experiments: it computes the whole (T, S) matrix of weights and
// returns it. MultiheadAttention and CausalSelfAttention train faster.
#pragma once

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

  /// attention_mask (B, S) is 0 (or false) where a token is padding, to which no token attends.
  /// With a cache, x holds the tokens after those in the cache, and S counts all.
  Result operator()(const Tensor& x, const Tensor& attention_mask = {},
                    KVCache* cache = nullptr) const;

  // ---- the steps, in order
  virtual Projections projections(const Tensor& x) const;
  /// q k^T / sqrt(E): (B, T, S).
  virtual Tensor logits(const Tensor& q, const Tensor& k) const;
  /// -inf where the key comes after the query; the T queries are the last of the S tokens.
  virtual Tensor causal_mask(const Tensor& logits) const;
  /// -inf in the columns of padding. Called only if there is an attention mask.
  virtual Tensor attention_mask(const Tensor& logits, const Tensor& mask) const;
  /// softmax over the keys. A row of -inf alone gives zeros, and no gradient (ImitateTorch: NaN).
  virtual Tensor weights(const Tensor& logits) const;
  /// The weighted sums of the values, through the last layer.
  virtual Tensor mix(const Tensor& weights, const Tensor& v) const;

  INK_FIELDS(query, key, value, output)
};

}  // namespace ink
