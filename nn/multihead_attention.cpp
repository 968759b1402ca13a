#include "nn/multihead_attention.h"
#include "autograd/fused_ops.h"

#include <limits>
#include <string>
#include <tuple>

namespace ink {

// PyTorch draws out_proj as any Linear first, then the other weights, and sets the biases to zero.
MultiheadAttention::MultiheadAttention(int64_t width, int64_t count, const MultiheadOptions& given)
    : embed_dim(width), num_heads(count), options(given), out_proj(width, width, given.bias) {
  INK_CHECK(count > 0 && width % count == 0,
            "multihead_attention: expected embed_dim to be a multiple of num_heads, got ", width,
            " and ", count);
  if (options.kdim == 0) options.kdim = width;
  if (options.vdim == 0) options.vdim = width;
  const auto drawn = [](int64_t out, int64_t in) {
    Tensor weight = empty({out, in});
    init::xavier_uniform_(weight);
    return weight;
  };
  if (options.kdim == width && options.vdim == width) {
    in_proj_weight = drawn(3 * width, width);
  } else {
    q_proj_weight = drawn(width, width);
    k_proj_weight = drawn(width, options.kdim);
    v_proj_weight = drawn(width, options.vdim);
  }
  if (!options.bias) return;
  in_proj_bias = zeros({3 * width});
  init::zeros_(out_proj.bias);
}

namespace {

// Turns PyTorch's mask, which is true where a query may not attend, into one for
// scaled_dot_product_attention (bool: true where it may attend; floating: added).
Tensor allowed(const Tensor& mask, bool additive, DType dtype) {
  if (!additive) return logical_not(mask);
  if (mask.is_floating()) return mask;
  return masked_fill(zeros(mask.shape(), {dtype, mask.device()}), mask,
                     -std::numeric_limits<double>::infinity());
}

void check_mask(const char* name, const Tensor& mask) {
  INK_CHECK(!mask.defined() || mask.dtype() == boolean || mask.is_floating(),
            "multihead_attention: expected a bool ", name,
            " (true: not attended to) or a floating one (added to the scores), got ", mask.dtype(),
            "; of a mask that is 1 where to attend, as tokenizers make, pass mask == 0");
}

Tensor merged_mask(const MultiheadCall& call, const Shape& scores, DType dtype) {
  Tensor padding = call.key_padding_mask, mask = call.attn_mask;
  check_mask("key_padding_mask", padding);
  check_mask("attn_mask", mask);
  if (padding.defined()) {
    INK_CHECK((padding.shape() == Shape{scores[0], scores[3]}),
              "multihead_attention: expected key_padding_mask (B, S) = (", scores[0], ", ",
              scores[3], "), got ", padding.shape());
    padding = padding.view({scores[0], 1, 1, scores[3]});
  }
  if (mask.defined() && mask.dim() == 3) {
    const Shape by_head{scores[0] * scores[1], scores[2], scores[3]};
    INK_CHECK(mask.shape() == by_head, "multihead_attention: expected attn_mask (T, S) or (B ",
              "num_heads, T, S) = ", by_head, ", got ", mask.shape());
    mask = mask.view(scores);
  }
  const bool additive =
      (padding.defined() && padding.is_floating()) || (mask.defined() && mask.is_floating());
  if (padding.defined()) padding = allowed(padding, additive, dtype);
  if (mask.defined()) mask = allowed(mask, additive, dtype);
  if (!padding.defined() || !mask.defined()) return padding.defined() ? padding : mask;
  return additive ? padding + mask : logical_and(padding, mask);
}

// The shapes of inputs before their projections.
void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v, bool batch_first) {
  check_defined("multihead_attention", q, k, v);
  const int64_t batch = batch_first ? 0 : 1;
  const bool fit = q.dim() == 3 && k.dim() == 3 && v.dim() == 3 && k.size(batch) == q.size(batch) &&
                   v.size(0) == k.size(0) && v.size(1) == k.size(1);
  INK_CHECK(fit, "multihead_attention: expected query, key and value of ",
            batch_first ? "(B, T, E), (B, S, kdim) and (B, S, vdim)"
                        : "(T, B, E), (S, B, kdim) and (S, B, vdim)",
            ", got ", q.shape(), ", ", k.shape(), " and ", v.shape(),
            q.dim() == 2 ? "; unsqueeze(" + std::to_string(batch) + ") makes a batch of one" : "");
}

}  // namespace

// (B, T, E) or (T, B, E) as (B, num_heads, T, E / num_heads), in place.
Tensor MultiheadAttention::heads(const Tensor& x) const {
  const Tensor split = x.view({x.size(0), x.size(1), num_heads, embed_dim / num_heads});
  return split.permute(options.batch_first ? Shape{0, 2, 1, 3} : Shape{1, 2, 0, 3});
}

MultiheadAttention::Result MultiheadAttention::operator()(const Tensor& query, const Tensor& key,
                                                          const Tensor& value,
                                                          const MultiheadCall& call) const {
  check_shapes(query, key, value, options.batch_first);
  const bool packed = in_proj_weight.defined();
  const Parameter* own[] = {&q_proj_weight, &k_proj_weight, &v_proj_weight};
  const auto project = [&](const Tensor& x, int64_t i) {
    const auto part = [&](const Tensor& t) { return t.narrow(0, i * embed_dim, embed_dim); };
    return linear(x, packed ? part(in_proj_weight) : Tensor(*own[i]),
                  options.bias ? part(in_proj_bias) : Tensor());
  };
  return attend(project(query, 0), project(key, 1), project(value, 2), call);
}

MultiheadAttention::Result MultiheadAttention::operator()(const Tensor& x,
                                                          const MultiheadCall& call) const {
  if (!in_proj_weight.defined()) return (*this)(x, x, x, call);
  check_shapes(x, x, x, options.batch_first);
  const auto qkv = split(linear(x, in_proj_weight, in_proj_bias), embed_dim, -1);
  return attend(qkv[0], qkv[1], qkv[2], call);
}

// q (B, T, E), k and v (B, S, E), projected; or as batch_first says.
MultiheadAttention::Result MultiheadAttention::attend(const Tensor& projected_q,
                                                      const Tensor& projected_k,
                                                      const Tensor& projected_v,
                                                      const MultiheadCall& call) const {
  const Tensor q = heads(projected_q);
  Tensor k = heads(projected_k), v = heads(projected_v);
  if (call.cache) std::tie(k, v) = call.cache->append(k, v);
  AttentionOptions how;
  how.attn_mask = merged_mask(call, {q.size(0), num_heads, q.size(2), k.size(2)}, q.dtype());
  how.dropout_p = training ? options.dropout : 0;
  (call.cache ? how.causal_lower_right : how.is_causal) = call.is_causal;
  Result result;
  Tensor y;  // (B, num_heads, T, E / num_heads)
  if (call.need_weights) {
    const RandomPosition position = context().random;
    result.weights = attention_weights(q, k, how);
    if (context().imitate_torch) {
      y = matmul(result.weights, v);
    } else {  // no product with the weights, which would pass on a NaN that a query may not see
      context().random = position;
      y = scaled_dot_product_attention(q, k, v, how);  // drops the same weights
    }
    if (call.average_attn_weights) result.weights = mean(result.weights, {1});
  } else {
    y = scaled_dot_product_attention(q, k, v, how);
  }
  y = y.permute(options.batch_first ? Shape{0, 2, 1, 3} : Shape{2, 0, 1, 3});
  result.output = out_proj(y.reshape(projected_q.shape()));
  return result;
}

}  // namespace ink
