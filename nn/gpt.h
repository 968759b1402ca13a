// GPT: the whole language model. Radford et al. 2019; names and numbers as in nanoGPT.
#pragma once

#include <algorithm>
#include <tuple>
#include <typeinfo>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/language_model.h"

namespace ink {

/// The parts that a GPT of your own has in place of GPT-2's are made by factories: GPT(config,
/// make_block<MyBlock>), or GPT(config, make_attention<MyAttention>, make_mlp<MyMLP>), or either of
/// these two alone.
struct GPT : LanguageModel {
  Embedding wte;  // tokens
  Embedding wpe;  // positions
  Dropout drop;
  ModuleList<std::unique_ptr<Block>> h;
  LayerNorm ln_f;
  Linear lm_head;  // its weight is wte's

  /// Weights are drawn as nanoGPT draws them: the same seed gives the same model.
  explicit GPT(const GPTConfig& c, const MakeBlock& block = make_block<Block>)
      : LanguageModel(c),
        wte(c.vocab_size, c.n_embd),
        wpe(c.block_size, c.n_embd),
        drop(c.dropout),
        ln_f(c.n_embd, c.bias),
        lm_head(c.n_embd, c.vocab_size, false) {
    for (int64_t i = 0; i < c.n_layer; ++i) h.push_back(block(c));
    wte.weight = lm_head.weight;
    init_weights();
  }
  GPT(const GPTConfig& c, const MakeAttention& attention, const MakeMLP& mlp = make_mlp<MLP>)
      : GPT(c, [&](const GPTConfig& sizes) {
          return std::make_unique<Block>(sizes, attention, mlp);
        }) {}

  GPT(const GPTConfig& c, const MakeMLP& mlp) : GPT(c, make_attention<CausalSelfAttention>, mlp) {}

  Tensor operator()(const Tensor& ids) const override { return lm_head(features(ids)); }

  /// Without ever holding all logits.
  Tensor loss(const Tensor& ids, const Tensor& targets,
              Reduction reduction = Reduction::mean) const override {
    const AuxiliaryLoss auxiliary;
    return auxiliary.added_to(linear_cross_entropy(features(ids), lm_head.weight, targets, -100,
                                                   reduction, training ? z_loss : 0),
                              targets, reduction);
  }

  /// The input of the head: ids (B, T) -> (B, T, C). Logits, loss and generate all begin here, so
  /// override it for a model with other features.
  virtual Tensor features(const Tensor& ids) const { return features(ids, nullptr); }
  /// The same with caches, one for each block: ids are the tokens after those that they remember.
  virtual Tensor features(const Tensor& ids, std::vector<KVCache>* caches) const {
    INK_CHECK(!caches || (caches->size() >= h.size() && !caches->empty()),
              "gpt: expected a cache for each of ", h.size(), " blocks, got ",
              caches ? caches->size() : 0);
    Tensor x = embedded(ids, caches ? caches->front().size() : 0);
    Branch branch;
    for (size_t i = 0; i < h.size(); ++i)
      std::tie(x, branch) = (*h[i])(x, branch, caches ? &caches->at(i) : nullptr);
    return last_norm(x, branch);
  }
  /// The norm in front of the head, of x (B, T, C) with what the last block adds to it.
  virtual Tensor last_norm(const Tensor& x, const Branch& branch) const {
    return add_layer_norm(x, branch, ln_f).second;
  }

  /// Tokens with their positions: x (B, T, C) of the tokens at positions start .. start + T - 1.
  /// Override it together with CausalSelfAttention::prepare_scores for a model that knows positions
  /// otherwise. If it has no use for wpe, its constructor says `wpe = Embedding();`.
  virtual Tensor add_positions(const Tensor& x, int64_t start) const {
    return x + wpe.weight.narrow(0, start, x.size(1));  // (B, T, C) + (T, C)
  }

  /// A model that extends this one says yes if its features know caches, as those of GPT do.
  bool uses_caches() const override { return typeid(*this) == typeid(GPT); }
  /// A block that takes no notice of its cache sees the last token alone. If all do, generate goes
  /// on without caches.
  Tensor next_logits(const Tensor& ids, DecodeCache* cache) const override {
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

  std::vector<Tensor> attention_weights(const Tensor& ids) const override {
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

  INK_FIELDS(wte, wpe, drop, h, ln_f, lm_head)

 protected:
  /// Draws the weights of all fields anew, in nanoGPT's order, which draws the tied weight twice.
  void init_weights() {
    const double residual_std = draw_layers();
    for (const auto& block : h) {
      const Linear *attn = block->attn ? &block->attn->c_proj : nullptr,
                   *mlp = block->mlp ? &block->mlp->c_proj : nullptr;
      for (const Linear* into_stream : {attn, mlp})
        if (into_stream && into_stream->weight.defined())
          init::normal_(into_stream->weight, 0, residual_std);
    }
  }
  /// The input of the first block: ids (B, T), of which the first stands at position `start`.
  Tensor embedded(const Tensor& ids, int64_t start = 0) const {
    INK_CHECK(ids.dim() == 2 && ids.numel() > 0, "gpt: expected ids (B, T), at least one, got ",
              ids.shape());
    const int64_t T = ids.size(1);
    INK_CHECK(start + T <= config.block_size, "gpt: a sequence of ", start + T,
              " tokens is longer than block_size ", config.block_size);
    return drop(add_positions(wte(ids), start));
  }
};

}  // namespace ink
