// A GPT from its parts: attention, blocks, training, writing
//
// The model that follows is a whole GPT: causal self-attention with several heads, an MLP, residual
// connections, layer norms. Afterwards you can read nn/gpt.h, or any other transformer, because
// they differ from it in speed and size only. The language is that of lesson 6.
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
  // ---- 1. Attention: every position asks all positions before it
  //
  // Each position sends out a query, and offers a key and a value. Where a query matches a key, the
  // value is taken over: the result is an average of values, weighted by softmax(q k^T / sqrt(d)).
  // The mask hides later positions, which are not written yet. Heads do this side by side, each
  // with d = C / heads numbers of a position.
  struct Attention : Module {
    int64_t heads;
    Linear qkv, proj;
    Attention(int64_t C, int64_t n) : heads(n), qkv(C, 3 * C), proj(C, C) {}

    /// (B, T, C) -> {(B, T, C), weights (B, heads, T, T)}
    std::pair<Tensor, Tensor> operator()(const Tensor& x) const {
      const auto [B, T, C] = x.sizes<3>();
      const Shape split_heads = {B, T, 3, heads, C / heads};
      const std::vector<Tensor> parts = qkv(x).view(split_heads).permute({2, 0, 3, 1, 4}).unbind(0);
      const Tensor &q = parts[0], &k = parts[1], &v = parts[2];  // (B, heads, T, d) each
      const double scale = 1 / std::sqrt(static_cast<double>(C / heads));
      const Tensor later = triu(ones({T, T}), 1) == 1;
      const Tensor scores = masked_fill(matmul(q, k.transpose(-2, -1)) * scale, later, -inf);
      const Tensor weights = softmax(scores, -1);
      return {proj(matmul(weights, v).transpose(1, 2).reshape({B, T, C})), weights};
    }
    INK_FIELDS(qkv, proj)
  };

  void step_1() {
    // The weights of the first head at random: each row sums to 1, and nobody looks ahead.
    manual_seed(1);
    const Attention attention(8, 2);
    const Tensor weights = attention(randn({1, 4, 8})).second.detach();
    print(weights.index({0, 0}));
  }

  // ---- 2. A block, and the model
  //
  // Attention moves information between positions, and the MLP works on it within each. Both add to
  // the residual stream x, which runs through untouched, and with it the gradient.
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
  // A position is the sum of what stands there and where it stands.
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

  void step_2() {
    context().default_dtype = f64;  // the same digits on every machine
    manual_seed(1);
    model = std::make_unique<TinyGPT>(tokenizer.vocab_size(), 64, 32);
    print("parameters:", model->num_parameters());
    print("logits", tuple((*model)(tensor({{4, 14, 20, 10}})).shape()));
  }

  // ---- 3. Training

  void step_3() {
    const int64_t B = 8, T = 64, steps = 500;
    AdamW optimizer(decay_matrices(model->named_parameters(), 0.1), {.beta2 = 0.99});
    const Schedule lr = warmup_cosine(1e-2, 1e-3, 20, steps);
    for (int64_t step = 0; step < steps; ++step) {
      const Batch batch = data.train_batch(1, static_cast<uint64_t>(step), B, T);
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
    for (std::string text : {"Ada", "Bela", "Cleo", "Dora"}) {
      while (text.back() != '\n' && text.size() < 64)
        text += tokenizer.decode(sample(next_probabilities(text)).tolist<int64_t>());
      print(text.substr(0, text.find('\n')));
    }

    // What was seen must come back 20 characters later, which the recurrent model never learnt.
    for (const std::string thing : {"kite", "lamp", "pan", "rope"}) {
      const Tensor p = next_probabilities("Ada the dog saw a " + thing + ". It was red. No ");
      const std::string best = tokenizer.decode(argmax(p).tolist<int64_t>());
      print("saw a", thing, "... No", best, "with probability", fixed(max(p).item(), 2));
    }

    // To try: train without wpe, or with one head, or with one block, and repeat the test. Then
    // let GPT from nn/gpt.h take the place of TinyGPT, and TextDataset, with a book of yours, that
    // of the language. `./run.sh train` does both.
  }
};

}  // namespace

Lesson lesson_7() {
  using N = Lesson7;
  return lesson<N>("7_gpt", {&N::step_1, &N::step_2, &N::step_3, &N::step_4});
}

}  // namespace ink
