// A GPT from its parts: attention, blocks, training
//
// Here is a whole GPT: causal self-attention with several heads, an MLP, residual connections and
// layer norms. Afterwards you can read nn/gpt.h and any other GPT of this kind, because they have
// the same parts in other sizes. The language is that of lesson 6, where [girl=girls] chooses a
// girl and [girl] repeats her. The task is that of lesson 6, too: predict the next character.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "data/dataset.h"
#include "nn/clip_grad.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace ink {
namespace {

struct Lesson7 : Notebook {
  // ---- 1. Attention: every position looks at itself and at those before it
  //
  // Each position has a query q, a key k and a value v, and takes an average of all values:
  //   weights = softmax(q k^T / sqrt(d)), where a query has d numbers
  //   result  = weights v
  // The better its query matches a key, the larger is the weight of that key's value. A mask makes
  // the weights of later positions 0, because their characters are yet to be predicted. Several
  // heads do this side by side, each with d = C / heads numbers. x has the shape (B, T, C): B
  // texts, T positions and C numbers for each.
  struct Attention : Module {
    int64_t heads;
    Linear qkv, proj;
    Attention(int64_t C, int64_t n) : heads(n), qkv(C, 3 * C), proj(C, C) {}

    /// (B, T, C) -> {(B, T, C), weights (B, heads, T, T)}
    std::pair<Tensor, Tensor> operator()(const Tensor& x) const {
      const auto [B, T, C] = x.sizes<3>();
      const Shape split_heads = {B, T, 3, heads, C / heads};  // one Linear gives q, k and v
      const std::vector<Tensor> parts = qkv(x).view(split_heads).permute({2, 0, 3, 1, 4}).unbind(0);
      const Tensor &q = parts[0], &k = parts[1], &v = parts[2];  // (B, heads, T, d) each
      const double scale = 1 / std::sqrt(static_cast<double>(C / heads));
      const Tensor later = triu(ones({T, T}), 1) == 1;  // (T, T): is the key's position later?
      const Tensor scores = masked_fill(matmul(q, k.transpose(-2, -1)) * scale, later, -inf);
      const Tensor weights = softmax(scores, -1);
      return {proj(matmul(weights, v).transpose(1, 2).reshape({B, T, C})), weights};
    }
    INK_FIELDS(qkv, proj)
  };

  void step_1() {
    // These are the weights of the first head before training. Each row sums to 1, and no position
    // looks ahead.
    manual_seed(1);
    const Attention attention(8, 2);
    const Tensor weights = attention(randn({1, 4, 8})).second.detach();
    print(weights.index({0, 0}));
  }

  // ---- 2. A block, and the model
  //
  // Attention moves information between positions. The MLP (fc, gelu, proj) works within each
  // position; gelu is a smooth relu. Both read a normalised x and add to x, the residual stream.
  // The gradient passes through these additions unchanged. The fields have GPT-2's names where it
  // has such a part. (There, the MLP is a layer of its own, and qkv is c_attn.)
  struct Block : Module {
    LayerNorm ln_1, ln_2;
    Attention attn;
    Linear fc, proj;
    explicit Block(int64_t C) : ln_1(C), ln_2(C), attn(C, 4), fc(C, 4 * C), proj(4 * C, C) {}
    Tensor operator()(Tensor x) const {
      x = x + attn(ln_1(x)).first;
      return x + proj(gelu(fc(ln_2(x))));
    }
    INK_FIELDS(ln_1, ln_2, attn, fc, proj)
  };
  // The stream starts as the sum of two embeddings: wte says which character it is, wpe where it
  // stands.
  struct TinyGPT : Module {
    Embedding wte, wpe;
    ModuleList<Block> h;
    LayerNorm ln_f;
    Linear lm_head;
    TinyGPT(int64_t V, int64_t T, int64_t C)
        : wte(V, C), wpe(T, C), h(2, C), ln_f(C), lm_head(C, V) {}
    Tensor operator()(const Tensor& ids) const {  // (B, T) -> (B, T, V)
      Tensor x = wte(ids) + wpe(arange(ids.size(1)));
      for (const Block& block : h) x = block(x);
      return lm_head(ln_f(x));
    }
    INK_FIELDS(wte, wpe, h, ln_f, lm_head)
  };

  void step_2() {
    // For ids (B, T), the model gives the logits of the next character at every position. So each
    // text counts as T texts to learn from: its first character, its first two, and so on.
    const TinyGPT untrained(30, 64, 32);
    print("parameters:", untrained.num_parameters());
    print("logits", tuple(untrained(zeros({8, 64}, i64)).shape()));
  }

  // ---- 3. Training
  const FablesDataset data{Fables(R"(
story: [girl=girls] the [beast=beasts] saw a [thing=things]. It was [colours]. [end]\n
end: Soon [girl] had the [thing]. | No [thing] for [girl].
girls: Ada | Bela | Cleo | Dora
beasts: ape | bear | cat | dog
things: kite | lamp | pan | rope
colours: blue | green | red
)")};
  const Tokenizer& tokenizer = data.tokenizer();
  std::unique_ptr<TinyGPT> model;

  void step_3() {
    // The loop is that of lesson 5, with two additions as in nanoGPT. Weight decay pulls matrices
    // towards 0: decay_matrices applies it to them, and not to biases and norms. The learning rate
    // rises to 1e-2 in 20 steps and then falls to 1e-3, because large steps help at first and harm
    // at the end. (beta2 sets over how many steps AdamW averages the squares of gradients.)
    context().default_dtype = f64;  // the same digits on every machine
    manual_seed(1);
    const int64_t B = 8, T = 64, steps = 500;
    model = std::make_unique<TinyGPT>(tokenizer.vocab_size(), T, 32);
    AdamW optimizer(decay_matrices(model->named_parameters(), 0.1), {.beta2 = 0.99});
    const Schedule lr = warmup_cosine(1e-2, 1e-3, 20, steps);
    for (int64_t step = 0; step < steps; ++step) {
      const Batch batch = data.train_batch(/*seed=*/1, step, B, T);
      const Tensor x = from_vector(batch.x, {B, T}), y = from_vector(batch.y, {B, T});
      const Tensor loss = cross_entropy((*model)(x), y);
      optimizer.zero_grad();
      loss.backward();
      clip_grad_norm_(model->parameters(), 1.0);
      optimizer.set_lr(lr(step));
      optimizer.step();
      if (step % 100 == 0 || step == steps - 1)
        print("step", step, "loss", fixed(loss.item(), 3), "best possible",
              fixed(mean(tensor(batch.best_possible)).item(), 3));
    }
  }

  // ---- 4. It writes, and it remembers
  Tensor next_probabilities(const std::string& text) const {
    const NoGrad no_grad;
    const Tensor ids = tensor(tokenizer.encode(text)).unsqueeze(0);  // (1, T)
    return softmax((*model)(ids).index({0, -1}), -1);
  }

  void step_4() {
    // Before each draw of a character, the model reads the whole text so far.
    for (std::string text : {"Ada", "Bela", "Cleo", "Dora"}) {
      while (text.back() != '\n' && text.size() < 64)
        text += tokenizer.decode(sample(next_probabilities(text)).tolist<int64_t>());
      print(text.substr(0, text.find('\n')));
    }

    // The thing that was seen must come back some 20 characters later. The recurrent model of
    // lesson 6 did not learn that.
    for (const std::string thing : {"kite", "lamp", "pan", "rope"}) {
      const Tensor p = next_probabilities("Ada the dog saw a " + thing + ". It was red. No ");
      const std::string best = tokenizer.decode(argmax(p).tolist<int64_t>());
      print("saw a", thing, "... No", best, "with probability", fixed(max(p).item(), 2));
    }

    // To try: train without wpe, with one head, or with one block, and repeat the test. Then
    // replace TinyGPT by GPT (nn/gpt.h), and FablesDataset by a TextDataset of a book of yours.
    // `./run.sh train --data book.txt` does both.
  }
};

}  // namespace

Lesson lesson_7() {
  using N = Lesson7;
  return lesson<N>("7_gpt", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
