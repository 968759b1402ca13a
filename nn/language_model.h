// LanguageModel: what a trainer, sampling and the commands need of a model. GPT is one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/config.h"
#include "nn/kv_cache.h"
#include "nn/module.h"

namespace ink {

/// How LanguageModel::generate chooses tokens.
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
  /// Ids are below it, where a model has more than its tokenizer; 0: all of the model's.
  int64_t vocab_size = 0;
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

/// What a model remembers of the tokens so far. It uses what it needs.
struct DecodeCache {
  int64_t size = 0;             // tokens so far, and so the position of the next; generate counts
  std::vector<KVCache> layers;  // of attention
  std::vector<Tensor> state;    // of anything else, such as a recurrent layer; empty at first
  bool remembers() const;       // anything? Otherwise generate goes on without it
};

/// A model of your own extends this (or GPT): operator() is enough. The trainer and the commands
/// take it by name (add_model).
struct LanguageModel : Module {
  GPTConfig config;
  /// In training, the loss of a target has this much of (log sum exp logits)^2 (cross_entropy).
  double z_loss = 0;

  explicit LanguageModel(const GPTConfig& c) : config(c.checked()) {}

  /// Logits of the next token at every position: ids (B, T) i64, T <= block_size -> (B, T, V).
  virtual Tensor operator()(const Tensor& ids) const = 0;

  /// The mean (or sum) of -log p(target) of ids and targets (B, T) i64 -> (), and in training the
  /// terms that layers add (add_auxiliary_loss), and z_loss. Targets of -100 are left out. Override
  /// it for a loss that never holds all logits, or another one. The trainer asks for the sum where
  /// a step has several parts, and divides by all targets of the step.
  virtual Tensor loss(const Tensor& ids, const Tensor& targets,
                      Reduction reduction = Reduction::mean) const;

  // ---- sampling
  /// Does generate use a cache? Otherwise it runs the whole context for each token.
  virtual bool uses_caches() const { return false; }
  /// An empty cache: of n_layer layers.
  virtual DecodeCache make_cache() const;
  /// Logits (B, V) of the token after ids (B, T); these come after what the cache, if there is one,
  /// remembers, and are remembered, too. A model that uses caches overrides it.
  virtual Tensor next_logits(const Tensor& ids, DecodeCache* cache) const;

  /// The attention weights, for `sample --attention`: ids (1, T) -> (n_head, T, T) for each layer.
  /// Throws for a model that shows none.
  virtual std::vector<Tensor> attention_weights(const Tensor& ids) const;

  /// How many keys a query of its attention sees, with its own; 0: all before it. For FLOPs.
  virtual int64_t attention_window() const { return 0; }

  /// Continues ids (B, T), T >= 1, token by token -> (B, T + max_new_tokens). Sees the last
  /// block_size tokens. Records no graph. Throws in training mode with dropout: call eval() first.
  Tensor generate(const Tensor& ids, const GenerateOptions& options = {}) const;

 protected:
  /// Draws the weights of all Linear and Embedding that are given from N(0, 0.02), as GPT-2 does;
  /// biases become zero. Returns the deviation for projections into the residual stream: divided by
  /// the square root of the number of additions to it, so that its variance does not grow with
  /// depth.
  double draw_layers();
};

/// Adds a term to the loss that this thread computes, such as one that keeps experts in balance
/// (Fedus et al. 2021): `mean`, a number (), is a mean over tokens. A layer calls it in its forward
/// pass, `if (training)`. A loss that is a sum takes it times its number of targets, so that parts
/// of a batch and micro-batches add up. Outside of a loss it does nothing. (Not inside
/// checkpoint(), whose forward pass records no graph.)
void add_auxiliary_loss(const Tensor& mean);

/// While it lives, collects what add_auxiliary_loss adds in this thread: for a loss of your own.
class AuxiliaryLoss {
 public:
  AuxiliaryLoss();
  ~AuxiliaryLoss();
  AuxiliaryLoss(const AuxiliaryLoss&) = delete;
  AuxiliaryLoss& operator=(const AuxiliaryLoss&) = delete;
  /// loss, of this reduction, and what was collected.
  Tensor added_to(const Tensor& loss, const Tensor& targets, Reduction reduction) const;

 private:
  friend void add_auxiliary_loss(const Tensor& mean);
  AuxiliaryLoss* outer_;
  Tensor sum_;
};

}  // namespace ink
