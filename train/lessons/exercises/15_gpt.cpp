// Exercise 15: a GPT of your own parts
//
// Here are the parameters of a small GPT. Write how they work together, and train it on the
// built-in stories: with parts that are right, it reaches a loss of 0.9 in well under a minute.
//
//   SmallBlock  ln_1, ln_2, qkv (C -> 3 C), proj (C -> C), up (C -> 4 C), down (4 C -> C), heads
//   SmallGpt    wte, wpe (positions), h (the blocks), ln_f, lm_head (C -> V)
//
// All but `heads` are called like functions: p.qkv(x), model.wte(ids).
//
//   attention  x (B, T, C). qkv(x) holds q, k and v side by side, each (B, T, C). Each head has its
//              own C / heads of these numbers: view({B, T, heads, C / heads}), then transpose(1, 2)
//              puts the heads in front. Then comes exercise 9 for all heads at once. Put the heads
//              side by side again, (B, T, C), and apply proj.
//   block      x = x + attention(ln_1(x)), then x + the MLP of ln_2(x): down(gelu(up(...)))
//   logits     ids (B, T) -> (B, T, V). wte(ids) + wpe(arange(T)), the blocks, ln_f, lm_head
//   loss       the mean over all B T positions of the cross entropy: exercise 6. Use view to make
//              rows of them
//   step       one step of training; returns the loss. zero_grad, backward, step: lesson 5
//
// You may use your answers to other exercises, or the library: cross_entropy(logits, ids),
// scaled_dot_product_attention(q, k, v, {.is_causal = true}). Lesson 7 explains it all.
#include "train/lessons/exercises/gpt.h"

using namespace ink;

Tensor gpt_attention(const SmallBlock& p, const Tensor& x) {
  // >>> todo("gpt_attention");
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2);
  Tensors heads;
  for (const Tensor& part : split(p.qkv(x), C, 2))
    heads.push_back(part.view({B, T, p.heads, C / p.heads}).transpose(1, 2));
  const Tensor y = scaled_dot_product_attention(heads[0], heads[1], heads[2], {.is_causal = true});
  return p.proj(y.transpose(1, 2).reshape({B, T, C}));
  // <<<
}

Tensor gpt_block(const SmallBlock& p, const Tensor& x) {
  // >>> todo("gpt_block");
  const Tensor y = x + gpt_attention(p, p.ln_1(x));
  return y + p.down(gelu(p.up(p.ln_2(y))));
  // <<<
}

Tensor gpt_logits(const SmallGpt& model, const Tensor& ids) {
  // >>> todo("gpt_logits");
  Tensor x = model.wte(ids) + model.wpe(arange(ids.size(1)));
  for (const SmallBlock& p : model.h) x = gpt_block(p, x);
  return model.lm_head(model.ln_f(x));
  // <<<
}

Tensor gpt_loss(const Tensor& logits, const Tensor& targets) {
  // >>> todo("gpt_loss");
  return cross_entropy(logits.view({-1, logits.size(-1)}), targets.view({-1}));
  // <<<
}

Tensor gpt_step(const SmallGpt& model, AdamW& optimizer, const Tensor& ids, const Tensor& targets) {
  // >>> todo("gpt_step");
  const Tensor loss = gpt_loss(gpt_logits(model, ids), targets);
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss;
  // <<<
}

INK_EXERCISE(gpt_exercise({gpt_attention, gpt_block, gpt_logits, gpt_loss, gpt_step}))
