#include "nn/gpt.h"
#include "autograd/more_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ink {

// Weights are N(0, 0.02), biases zero. Weights of projections into the residual stream are divided
// by the square root of the number of additions to it, so that its variance does not grow with
// depth. The order of the draws is nanoGPT's, which draws the tied weight twice.
void GPT::init_weights() {
  apply([](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) {
      init::normal_(linear->weight, 0, 0.02);
      if (linear->bias.defined()) init::zeros_(linear->bias);
    } else if (auto* table = dynamic_cast<Embedding*>(&module)) {
      init::normal_(table->weight, 0, 0.02);
    }
  });
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  for (Block& block : h) {
    init::normal_(block.attn->c_proj.weight, 0, residual_std);
    init::normal_(block.mlp.c_proj.weight, 0, residual_std);
  }
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLeast = 1e-30;  // of a temperature: below it the quotient overflows f32

// Scores that are out of the smallest nucleus of probability top_p become -inf.
Tensor only_nucleus(const Tensor& scores, double top_p) {
  const auto [sorted, ids] = sort(scores, -1, true);
  const Tensor p = softmax(sorted), before = cat({zeros_like(p.narrow(-1, 0, 1)),
                                                  cumsum(p, -1).narrow(-1, 0, p.size(-1) - 1)},
                                                 -1);
  return scatter(scores, -1, ids, masked_fill(sorted, before >= std::max(top_p, kLeast), -kInf));
}

// The next token's ids (B, 1) from its logits (B, V) and the tokens so far (B, T).
Tensor choose(const Tensor& logits, const Tensor& context, const GenerateOptions& options) {
  const Tensor scores = next_token_scores(logits, context, options);
  if (options.temperature < kLeast) return argmax(scores, -1, true);
  const Tensor p = softmax(scores);
  return options.generator ? multinomial(p, 1, false, *options.generator) : sample(p);
}

void check(const GenerateOptions& options) {
  const auto share = [](double x) { return x >= 0 && x <= 1; };
  INK_CHECK(options.temperature >= 0, "generate: expected a temperature of 0 or more, got ",
            options.temperature);
  INK_CHECK(options.max_new_tokens >= 0 && options.top_k >= 0,
            "generate: expected max_new_tokens and top_k of 0 or more, got ",
            options.max_new_tokens, " and ", options.top_k);
  INK_CHECK(share(options.top_p) && share(options.min_p),
            "generate: expected top_p and min_p of 0 to 1, got ", options.top_p, " and ",
            options.min_p);
  INK_CHECK(options.repetition_penalty > 0 && options.repetition_penalty < kInf,
            "generate: expected a repetition_penalty above 0, got ", options.repetition_penalty);
}

}  // namespace

Tensor next_token_scores(const Tensor& logits, const Tensor& context,
                         const GenerateOptions& options) {
  check(options);
  Tensor scores = logits;
  if (const double penalty = options.repetition_penalty; penalty != 1) {
    const Tensor old = gather(scores, -1, context);
    scores = scatter(scores, -1, context, where(old < 0, old * penalty, old / penalty));
  }
  if (options.temperature < kLeast) return scores;  // the likeliest is chosen
  scores = scores / options.temperature;
  if (options.top_k > 0 && options.top_k < scores.size(-1)) {
    const Tensor worst = topk(scores, options.top_k).values.narrow(-1, options.top_k - 1, 1);
    scores = masked_fill(scores, scores < worst, -kInf);
  }
  if (options.top_p < 1) scores = only_nucleus(scores, options.top_p);
  if (options.min_p > 0) {
    const Tensor p = softmax(scores);
    scores = masked_fill(scores, p < amax(p, {-1}, true) * options.min_p, -kInf);
  }
  return scores;
}

std::vector<Tensor> GPT::attention_weights(const Tensor& ids) const {
  INK_CHECK(ids.dim() == 2 && ids.size(0) == 1, "attention_weights: expected ids (1, T), got ",
            ids.shape());
  INK_CHECK(!training || config.dropout == 0,
            "attention_weights: the model is in training mode and would drop; call eval() first");
  const NoGrad no_grad;
  std::vector<Tensor> layers;
  Tensor x = embedded(ids, 0);
  for (const Block& block : h) {
    layers.push_back(block.attn->weights(block.ln_1(x)).select(0, 0));
    x = block(x);
  }
  return layers;
}

Tensor GPT::generate(const Tensor& ids, const GenerateOptions& options) const {
  INK_CHECK(ids.dim() == 2 && ids.size(1) > 0,
            "generate: expected ids (B, T) with at least one token, got ", ids.shape());
  check(options);
  INK_CHECK(!training || config.dropout == 0,
            "generate: the model is in training mode and would drop; call eval() first");
  const NoGrad no_grad;
  Tensor all = ids;
  std::vector<KVCache> caches(h.size(), KVCache(config.block_size));
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    // Positions count from the first token seen. Once the context is full, each step moves them
    // all, and the caches are no longer right.
    const int64_t T = all.size(1), seen = std::min(T, config.block_size);
    if (T > config.block_size) {
      for (KVCache& cache : caches) cache.crop(0);
    }
    const int64_t fresh = uses_caches() ? seen - caches.front().size() : seen;
    const Tensor last = all.narrow(1, T - fresh, fresh);
    const Tensor x = uses_caches() ? features(last, &caches) : features(last);
    const Tensor next =
        choose(lm_head(x.select(1, fresh - 1)), all.narrow(1, T - seen, seen), options);
    all = cat({all, next}, 1);
    if (options.on_token) options.on_token(next.tolist<int64_t>());
  }
  return all;
}

}  // namespace ink
