// GPT: the whole language model. Radford et al. 2019; names and numbers as in nanoGPT.
#pragma once

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
  Tensor next_logits(const Tensor& ids, DecodeCache* cache) const override;

  std::vector<Tensor> attention_weights(const Tensor& ids) const override;

  INK_FIELDS(wte, wpe, drop, h, ln_f, lm_head)

 protected:
  /// Draws the weights of all fields anew, as nanoGPT does.
  void init_weights();
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
