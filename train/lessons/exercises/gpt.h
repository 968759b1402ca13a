// What exercise 15 is given: the parameters of a small GPT. How they work together is the reader's
// part.
#pragma once

#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "train/lessons/exercises/exercise.h"
#include "train/optimizer.h"

namespace ink {

/// A block's parameters, for vectors of C numbers.
struct SmallBlock : Module {
  LayerNorm ln_1, ln_2;
  Linear qkv, proj;  // attention: C -> 3 C, C -> C
  Linear up, down;   // MLP: C -> 4 C, 4 C -> C
  int64_t heads;
  SmallBlock(int64_t C, int64_t n)
      : ln_1(C), ln_2(C), qkv(C, 3 * C), proj(C, C), up(C, 4 * C), down(4 * C, C), heads(n) {}
  INK_FIELDS(ln_1, ln_2, qkv, proj, up, down)
};

/// A model's: V characters, texts of up to T of them.
struct SmallGpt : Module {
  Embedding wte, wpe;  // of characters (V, C), of positions (T, C)
  ModuleList<SmallBlock> h;
  LayerNorm ln_f;
  Linear lm_head;  // C -> V
  SmallGpt(int64_t V, int64_t T, int64_t C, int64_t heads, int64_t blocks)
      : wte(V, C), wpe(T, C), h(blocks, C, heads), ln_f(C), lm_head(C, V) {}
  INK_FIELDS(wte, wpe, h, ln_f, lm_head)
};

/// The functions that the reader writes.
struct GptParts {
  Tensor (*attention)(const SmallBlock& p, const Tensor& x);
  Tensor (*block)(const SmallBlock& p, const Tensor& x);
  Tensor (*logits)(const SmallGpt& model, const Tensor& ids);
  Tensor (*loss)(const Tensor& logits, const Tensor& targets);
  Tensor (*step)(const SmallGpt& model, AdamW& optimizer, const Tensor& ids, const Tensor& targets);
};

Exercise gpt_exercise(const GptParts& parts);

}  // namespace ink
