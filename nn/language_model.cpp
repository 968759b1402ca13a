#include "nn/language_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/more_ops.h"
#include "nn/embedding.h"
#include "nn/linear.h"

namespace ink {

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets, Reduction reduction) const {
  const AuxiliaryLoss auxiliary;
  const double z = training ? z_loss : 0;
  return auxiliary.added_to(cross_entropy((*this)(ids), targets, -100, reduction, z), targets,
                            reduction);
}

DecodeCache LanguageModel::make_cache() const {
  const auto layers = static_cast<size_t>(config.n_layer);
  return {0, std::vector<KVCache>(layers, KVCache(config.block_size)), {}};
}

bool DecodeCache::remembers() const {
  return !state.empty() ||
         std::any_of(layers.begin(), layers.end(), [](auto& layer) { return layer.size() > 0; });
}

Tensor LanguageModel::next_logits(const Tensor& ids, DecodeCache* cache) const {
  INK_CHECK(!cache, "next_logits: a model with uses_caches() overrides it, and this one does not");
  return (*this)(ids).select(1, -1);
}

std::vector<Tensor> LanguageModel::attention_weights(const Tensor&) const {
  detail::fail({"attention_weights: this model shows none; override it in a model that has them"});
}

double LanguageModel::draw_layers() {
  apply([](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) {
      if (linear->weight.defined()) init::normal_(linear->weight, 0, 0.02);
      if (linear->bias.defined()) init::zeros_(linear->bias);
    } else if (auto* table = dynamic_cast<Embedding*>(&module)) {
      if (table->weight.defined()) init::normal_(table->weight, 0, 0.02);
    }
  });
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

// ---- auxiliary losses

static thread_local AuxiliaryLoss* collecting = nullptr;

AuxiliaryLoss::AuxiliaryLoss() : outer_(std::exchange(collecting, this)) {}
AuxiliaryLoss::~AuxiliaryLoss() { collecting = outer_; }

void add_auxiliary_loss(const Tensor& mean) {
  INK_CHECK(mean.dim() == 0, "add_auxiliary_loss: expected a mean over tokens, (), got ",
            mean.shape());
  if (!collecting) return;
  Tensor& sum = collecting->sum_;
  const Tensor term = mean.dtype() == bf16 ? mean.to(f32) : mean;
  sum = sum.defined() ? sum + term : term;
}

Tensor AuxiliaryLoss::added_to(const Tensor& loss, const Tensor& targets,
                               Reduction reduction) const {
  if (!sum_.defined()) return loss;
  INK_CHECK(reduction != Reduction::none,
            "add_auxiliary_loss: expected a loss that is a mean or a sum over targets");
  const Tensor mean = sum_.to(loss.dtype());
  if (reduction == Reduction::mean) return loss + mean;
  return loss + mean * sum(targets != -100.0).to(loss.dtype());
}

// ---- sampling

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// Of a temperature: below it the quotient overflows f32. Of top_p: the likeliest token stays.
constexpr double kLeast = 1e-30;

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
  if (const int64_t V = options.vocab_size; V > 0 && V < logits.size(-1))
    scores = scores.narrow(-1, 0, V).contiguous();
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

Tensor LanguageModel::generate(const Tensor& ids, const GenerateOptions& options) const {
  INK_CHECK(ids.dim() == 2 && ids.size(1) > 0,
            "generate: expected ids (B, T) with at least one token, got ", ids.shape());
  check(options);
  INK_CHECK(!training || config.dropout == 0,
            "generate: the model is in training mode and would drop; call eval() first");
  const NoGrad no_grad;
  Tensor all = ids;
  bool cached = uses_caches();
  DecodeCache cache = make_cache();
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    // Positions count from the first token seen. Once the context is full, each step moves them
    // all, and the caches are no longer right.
    const int64_t T = all.size(1), seen = std::min(T, config.block_size);
    if (T > config.block_size) cache = make_cache();
    const int64_t fresh = seen - cache.size;
    const Tensor logits = next_logits(all.narrow(1, T - fresh, fresh), cached ? &cache : nullptr);
    cached = cached && cache.remembers();
    if (cached) cache.size = seen;
    const Tensor next = choose(logits, all.narrow(1, T - seen, seen), options);
    all = cat({all, next}, 1);
    if (options.on_token) options.on_token(next.tolist<int64_t>());
  }
  return all;
}

}  // namespace ink
