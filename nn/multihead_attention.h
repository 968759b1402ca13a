// MultiheadAttention: torch.nn.MultiheadAttention, with its names and its numbers.
#pragma once

#include "nn/kv_cache.h"
#include "nn/linear.h"

namespace ink {

/// The options of a MultiheadAttention; names and defaults are PyTorch's.
struct MultiheadOptions {
  double dropout = 0;  // of the weights, in training
  bool bias = true;
  int64_t kdim = 0, vdim = 0;  // width of keys and of values; 0: embed_dim
  bool batch_first = false;    // (B, T, E) in and out, rather than (T, B, E)
};

/// The options of a call, for T queries and S keys.
struct MultiheadCall {
  /// As in PyTorch, a bool mask is true where a key must *not* be attended to; a floating mask is
  /// added to the scores. (B, S), and (T, S) or (B num_heads, T, S).
  Tensor key_padding_mask = {}, attn_mask = {};
  bool is_causal = false;     // query i attends to keys 0 .. i (with a cache: 0 .. i + S - T)
  bool need_weights = false;  // return them too; otherwise they never exist whole
  bool average_attn_weights = true;  // over the heads
  KVCache* cache = nullptr;          // keys and values of earlier tokens; the call appends these
};

/// num_heads attentions side by side, each on embed_dim / num_heads features of query, key and
/// value; out_proj joins them. Vaswani et al. 2017, section 3.2.2. The initial weights, the order
/// of their draws and the names in a state_dict are those of torch.nn.MultiheadAttention.
struct MultiheadAttention : Module {
  int64_t embed_dim = 0, num_heads = 1;
  MultiheadOptions options;
  /// (3 E, E): q, k, v. Undefined if kdim or vdim is not embed_dim, E.
  Parameter in_proj_weight;
  /// These replace it then: (E, E), (E, kdim), (E, vdim).
  Parameter q_proj_weight, k_proj_weight, v_proj_weight;
  Parameter in_proj_bias;  // (3 E,), or undefined
  Linear out_proj;

  struct Result {
    Tensor output;   // (T, B, E), or as batch_first says
    Tensor weights;  // (B, T, S); (B, num_heads, T, S) if not averaged; undefined if not asked for
  };

  MultiheadAttention() = default;
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadOptions& options = {});

  /// query (T, B, E), key (S, B, kdim), value (S, B, vdim), or as batch_first says. A query that
  /// may attend to nothing gives out_proj's bias.
  Result operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const MultiheadCall& call = {}) const;
  /// Self-attention, with the three projections in one product.
  Result operator()(const Tensor& x, const MultiheadCall& call = {}) const;

  INK_FIELDS(in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, out_proj)

 private:
  Tensor heads(const Tensor& x) const;
  Result attend(const Tensor& q, const Tensor& k, const Tensor& v, const MultiheadCall& call) const;
};

}  // namespace ink
