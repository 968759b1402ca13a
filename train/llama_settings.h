// The settings of a Llama, for models that extend it.
#pragma once

#include "nn/llama.h"
#include "train/limits.h"

namespace ink {

/// For add_model<OwnLlama, LlamaConfig>("own"), and for configs that extend LlamaConfig.
template <class F>
void for_each_setting(LlamaConfig& c, F&& f) {
  f("n_kv_head", c.n_kv_head, "Llama: heads of keys and values, a divisor of n_head; 0: n_head",
    Limits{0, 1024});
  f("head_dim", c.head_dim, "Llama: width of a head, which is even; 0: n_embd / n_head (Qwen3)",
    Limits{0, 65536});
  f("intermediate_size", c.intermediate_size,
    "Llama: width of the MLP; 0: 8/3 n_embd, up to a multiple of 32", Limits{0, 1 << 20});
  f("rms_norm_eps", c.rms_norm_eps, "Llama: what a norm adds to the mean of the squares",
    Limits{.above = 0, .below = 1});
  f("rope_theta", c.rope_theta, "Llama: base of the rotary positions",
    Limits{.above = 1, .below = 1e12});
  f("rope_interleaved", c.rope_interleaved, "Llama: pairs are neighbours, as in GPT-J", Limits{});
  RopeScaling& rope = c.rope_scaling;
  f("rope_scaling", rope.rope_type, "Llama: slower turns for texts longer than in training",
    Limits{.choices = {"default", "linear", "llama3", "yarn"}});
  f("rope_factor", rope.factor, "Llama: ... how many times slower", Limits{1, 1e6});
  f("original_max_position_embeddings", rope.original_max_position_embeddings,
    "Llama: of llama3 and yarn: the length in training", Limits{0, 1 << 20});
  f("low_freq_factor", rope.low_freq_factor, "Llama: of llama3", Limits{.above = 0, .below = 1e6});
  f("high_freq_factor", rope.high_freq_factor, "Llama: of llama3",
    Limits{.above = 0, .below = 1e6});
  f("beta_fast", rope.beta_fast, "Llama: of yarn", Limits{.above = 0, .below = 1e6});
  f("beta_slow", rope.beta_slow, "Llama: of yarn", Limits{.above = 0, .below = 1e6});
  f("attention_factor", rope.attention_factor, "Llama: of yarn; 0: 0.1 log(rope_factor) + 1",
    Limits{0, 1e6});
  f("tie_word_embeddings", c.tie_word_embeddings, "Llama: one table for tokens and the head",
    Limits{});
  f("attention_bias", c.attention_bias, "Llama: q_proj, k_proj and v_proj have a bias (Qwen2)",
    Limits{});
  f("qk_norm", c.qk_norm, "Llama: normalise queries and keys (Qwen3)", Limits{});
  f("sliding_window", c.sliding_window,
    "Llama: keys that a query sees, with its own (Mistral); 0: all", Limits{0, 1 << 20});
  f("logit_softcap", c.logit_softcap, "Llama: logits stay below it by tanh (Gemma 2); 0: any",
    Limits{0, 1e9});
  f("parallel_block", c.parallel_block, "Llama: attention beside the MLP (PaLM)", Limits{});
}

}  // namespace ink
