#include "nn/self_attention.h"
#include "autograd/fused_ops.h"

#include <cmath>
#include <limits>
#include <tuple>

namespace ink {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

}  // namespace

SelfAttention::Result SelfAttention::operator()(const Tensor& x, const Tensor& mask,
                                                KVCache* cache) const {
  INK_CHECK(x.dim() == 3 && x.size(2) == query.in_features, "self_attention: expected (B, T, ",
            query.in_features, "), got ", x.shape());
  auto [q, k, v] = projections(x);
  if (cache) std::tie(k, v) = cache->append(k, v);
  Tensor scores = causal_mask(logits(q, k));
  if (mask.defined()) scores = attention_mask(scores, mask);
  const Tensor w = weights(scores);
  return {mix(w, v), w, k, v};
}

SelfAttention::Projections SelfAttention::projections(const Tensor& x) const {
  return {query(x), key(x), value(x)};
}

Tensor SelfAttention::logits(const Tensor& q, const Tensor& k) const {
  return matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(-1)));
}

Tensor SelfAttention::causal_mask(const Tensor& logits) const {
  const int64_t T = logits.size(-2), S = logits.size(-1);
  const Tensor later = triu(ones({T, S}, {f32, logits.device()}), S - T + 1) > 0;
  return masked_fill(logits, later, kMasked);
}

Tensor SelfAttention::attention_mask(const Tensor& logits, const Tensor& mask) const {
  INK_CHECK(mask.dim() == 2 && mask.size(0) == logits.size(0) && mask.size(1) == logits.size(-1),
            "self_attention: expected an attention mask (", logits.size(0), ", ", logits.size(-1),
            "), got ", mask.shape());
  return masked_fill(logits, logical_not(mask).unsqueeze(1), kMasked);
}

Tensor SelfAttention::weights(const Tensor& logits) const {
  if (context().imitate_torch) return softmax(logits);
  const Tensor nothing = all(logits == kMasked, {-1}, true);  // nothing to attend to
  return masked_fill(softmax(masked_fill(logits, nothing, 0)), nothing, 0);
}

Tensor SelfAttention::mix(const Tensor& weights, const Tensor& v) const {
  return output(matmul(weights, v));
}

}  // namespace ink
