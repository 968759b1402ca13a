#include "nn/gpt.h"

#include <algorithm>
#include <vector>

namespace ink {

// The order of the draws is nanoGPT's, which draws the tied weight twice.
void GPT::init_weights() {
  const double residual_std = draw_layers();
  for (const auto& block : h) {
    const Linear *attn = block->attn ? &block->attn->c_proj : nullptr,
                 *mlp = block->mlp ? &block->mlp->c_proj : nullptr;
    for (const Linear* into_stream : {attn, mlp})
      if (into_stream && into_stream->weight.defined())
        init::normal_(into_stream->weight, 0, residual_std);
  }
}

std::vector<Tensor> GPT::attention_weights(const Tensor& ids) const {
  INK_CHECK(ids.dim() == 2 && ids.size(0) == 1, "attention_weights: expected ids (1, T), got ",
            ids.shape());
  INK_CHECK(!training || config.dropout == 0,
            "attention_weights: the model is in training mode and would drop; call eval() first");
  const NoGrad no_grad;
  std::vector<Tensor> layers;
  Tensor x = h.size() > 0 ? embedded(ids) : Tensor();
  for (const auto& block : h) {
    layers.push_back(block->attention_weights(x).select(0, 0));
    x = (*block)(x);
  }
  return layers.empty() ? LanguageModel::attention_weights(ids) : layers;
}

// A block that takes no notice of its cache sees the last token alone. If all do, generate goes on
// without caches.
Tensor GPT::next_logits(const Tensor& ids, DecodeCache* cache) const {
  if (!cache) return lm_head(features(ids).select(1, -1));
  int64_t before = 0;  // tokens that a block remembers
  for (const KVCache& layer : cache->layers) before = std::max(before, layer.size());
  const Tensor x = features(ids, &cache->layers);
  if (cache->remembers())
    for (size_t i = 0; i < std::max<size_t>(h.size(), 1); ++i)
      INK_CHECK(cache->layers[i].size() == before + ids.size(1), "generate: block ", i,
                " did not append to its cache, and others did; a model with such blocks keeps a "
                "state of its own (next_logits), or says no to uses_caches()");
  return lm_head(x.select(1, -1));
}

}  // namespace ink
