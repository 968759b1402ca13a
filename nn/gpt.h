// GPT: the whole language model. Radford et al. 2019; names and numbers as in nanoGPT.
#pragma once

#include <functional>
#include <tuple>
#include <typeinfo>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/block.h"
#include "nn/embedding.h"

namespace ink {

/// How GPT::generate chooses tokens.
struct GenerateOptions {
  int64_t max_new_tokens = 100;
  double temperature = 1;  // divides the logits; 0 takes the likeliest token
  int64_t top_k = 0;       // chooses only among the top_k likeliest; 0: among all
  /// Only among the fewest likeliest whose probabilities sum to top_p or more (Holtzman et al.
  /// 2019); 0: the likeliest; 1: all.
  double top_p = 1;
  /// Only among those that are at least min_p times as likely as the likeliest (Nguyen et al.
  /// 2024); 0: all; 1: the likeliest.
  double min_p = 0;
  /// Logits of tokens that the context holds are divided by it if positive, and multiplied by it
  /// otherwise (Keskar et al. 2019); 1: none; above 1: repeats less.
  double repetition_penalty = 1;
  /// Null: draws by counter at context().random, whose call counts up. Otherwise it draws from this
  /// generator what torch.multinomial would.
  Generator* generator = nullptr;
  /// Called with every new token as it is chosen: one id for each row of the batch.
  std::function<void(const std::vector<int64_t>& next)> on_token = {};
};

/// The scores whose softmax generate draws the next token from: -inf for those left out. logits
/// (B, V); context (B, T) i64, the tokens so far. As in HF transformers, the penalty comes first,
/// then temperature (above 0), top_k, top_p and min_p, each among what the one before left.
Tensor next_token_scores(const Tensor& logits, const Tensor& context,
                         const GenerateOptions& options);

struct GPT : Module {
  GPTConfig config;
  Embedding wte;  // tokens
  Embedding wpe;  // positions
  Dropout drop;
  ModuleList<Block> h;
  LayerNorm ln_f;
  Linear lm_head;  // its weight is wte's

  /// Weights are drawn as nanoGPT draws them: the same seed gives the same model.
  explicit GPT(const GPTConfig& c,
               const MakeAttention& attention = make_attention<CausalSelfAttention>)
      : config(c.checked()),
        wte(c.vocab_size, c.n_embd),
        wpe(c.block_size, c.n_embd),
        drop(c.dropout),
        h(c.n_layer, c, attention),
        ln_f(c.n_embd, c.bias),
        lm_head(c.n_embd, c.vocab_size, false) {
    wte.weight = lm_head.weight;
    init_weights();
  }

  /// Logits of the next token at every position. ids (B, T) i64, T <= block_size -> (B, T, V).
  Tensor operator()(const Tensor& ids) const { return lm_head(features(ids)); }

  /// The mean (or sum) of -log p(target), without ever holding all logits. ids and targets (B, T)
  /// i64 -> (). Targets of -100 are left out.
  Tensor loss(const Tensor& ids, const Tensor& targets,
              Reduction reduction = Reduction::mean) const {
    return linear_cross_entropy(features(ids), lm_head.weight, targets, -100, reduction);
  }

  /// The input of the head: ids (B, T) -> (B, T, C). Logits, loss and generate all begin here, so
  /// override it for a model with other features.
  virtual Tensor features(const Tensor& ids) const { return features(ids, nullptr); }
  /// The same with caches, one for each block: ids are the tokens after those that they remember.
  virtual Tensor features(const Tensor& ids, std::vector<KVCache>* caches) const {
    Tensor x = embedded(ids, caches ? caches->front().size() : 0);
    Branch branch;
    for (size_t i = 0; i < h.size(); ++i)
      std::tie(x, branch) = h[i](x, branch, caches ? &caches->at(i) : nullptr);
    return add_layer_norm(x, branch, ln_f).second;
  }

  /// Tokens with their positions: x (B, T, C) of the tokens at positions start .. start + T - 1.
  /// Override it together with CausalSelfAttention::prepare_scores for a model that knows positions
  /// otherwise. If it has no use for wpe, its constructor says `wpe = Embedding();`.
  virtual Tensor add_positions(const Tensor& x, int64_t start) const {
    return x + wpe.weight.narrow(0, start, x.size(1));  // (B, T, C) + (T, C)
  }

  /// Does generate use caches? A model that extends this one says yes if its features know them, as
  /// those of GPT do.
  virtual bool uses_caches() const { return typeid(*this) == typeid(GPT); }

  /// The attention weights, for `sample --attention`: ids (1, T) -> (n_head, T, T) for each layer.
  std::vector<Tensor> attention_weights(const Tensor& ids) const;

  /// Continues ids (B, T), T >= 1, token by token -> (B, T + max_new_tokens). Sees the last
  /// block_size tokens. Records no graph. Throws in training mode with dropout: call eval() first.
  Tensor generate(const Tensor& ids, const GenerateOptions& options = {}) const;

  INK_FIELDS(wte, wpe, drop, h, ln_f, lm_head)

 private:
  void init_weights();
  /// The input of the first block: ids (B, T), of which the first stands at position `start`.
  Tensor embedded(const Tensor& ids, int64_t start) const {
    INK_CHECK(ids.dim() == 2, "gpt: expected ids (B, T), got ", ids.shape());
    const int64_t T = ids.size(1);
    INK_CHECK(start + T <= config.block_size, "gpt: a sequence of ", start + T,
              " tokens is longer than block_size ", config.block_size);
    return drop(add_positions(wte(ids), start));
  }
};

}  // namespace ink
