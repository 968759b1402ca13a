// What the page of `inkling look` shows: one forward pass of a model, op by op, and what the model
// says next.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "data/tokenizer.h"
#include "nn/language_model.h"

namespace ink {

struct LookLimits {
  int64_t tokens = 64;          // the last ones of the text are shown
  int64_t bytes = 4'000'000;    // of all pictures; wide tensors are shown in part
  int64_t knocked_heads = 400;  // models with more heads are shown without knocking them out
};

/// How many tokens of a text are shown: fewer than the limit if the context is shorter, or if the
/// weights of all heads would not fit.
int64_t look_tokens(const GPTConfig& config, const LookLimits& limits = {});

/// Runs the model, in evaluation mode, on ids: at least one, at most look_tokens.
///   tokens     their texts;  ids
///   steps      [{module, op, from: [earlier steps], pictures}]: every op in order, then softmax
///   pictures   [{name, rows, columns, shown, values}]: a row for each token, of which the first
///              `shown` columns are there, as 16-bit floats in base64; or [{name, heads, rows,
///              causal, values}]: for each head a square, or its lower triangle
///   stopped    of a step that holds the residual stream: {count, ids, p}, the most probable next
///              tokens if ln_f and lm_head followed at once
///   next       {count, vocabulary, ids, logits, p_next}: for each position the `count` largest
///              logits, and the probability of the token that follows; 32-bit floats in base64
///   words      {id: text} of all tokens that are named
///   knocked    the same probabilities, {count, ids, p, p_next}, for each head without what it adds
///              (its columns of c_proj are zero); absent if there are too many heads, or if they
///              are not those of a GPT
/// The weights are as before when it returns or throws.
nlohmann::json look_data(LanguageModel& model, const Tokenizer& tokenizer,
                         const std::vector<int64_t>& ids, const LookLimits& limits = {});

/// x as an IEEE half: 11 bits of mantissa.
uint16_t half_bits(double x);

}  // namespace ink
