// From GPT to Llama: four parts exchanged, one by one
//
// Most open models of today are kin of Llama. It is the GPT of lesson 7 with another norm, other
// positions, fewer heads of keys and values, and another MLP. Here each is exchanged in turn, and
// you see what it buys. Afterwards you can read nn/llama.h and the settings of such models.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "data/dataset.h"
#include "nn/clip_grad.h"
#include "nn/llama.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace ink {
namespace {

struct Lesson11 : Notebook {
  // ---- 1. RMSNorm: a norm that forgets the mean
  //
  // LayerNorm takes the mean off each row, divides by the standard deviation, and then scales and
  // shifts. RMSNorm only divides by the root of the mean square, and scales:
  //   y = x / sqrt(mean(x^2) + eps) * weight
  // One pass over the row finds its one sum, and no bias is left to learn. The other layers of a
  // Llama have no biases either. Both norms make the size of x irrelevant, which is what training
  // needs; that the mean does not matter, too, turned out not to help.
  struct Norm : Module {
    bool rms;
    Parameter weight, bias;
    Norm(int64_t C, bool is_rms) : rms(is_rms), weight(ones({C})) {
      if (!rms) bias = zeros({C});
    }
    Tensor operator()(const Tensor& x) const {  // (..., C) -> (..., C)
      if (!rms) return layer_norm(x, weight, bias);
      return x / sqrt(mean(square(x), {-1}, true) + 1e-5) * weight;
    }
    INK_FIELDS(weight, bias)
  };

  void step_1() {
    const Tensor x = tensor({1.0, 2.0, 3.0, 6.0});
    const Norm layer_norm(4, false), rms_norm(4, true);
    print("LayerNorm:", layer_norm(x).detach());
    print("RMSNorm:  ", rms_norm(x).detach());
    print("of 100 x: ", rms_norm(x * 100).detach());
    print("of x + 2: ", rms_norm(x + 2).detach());
  }

  // ---- 2. Rotary positions: turn queries and keys instead of adding a table
  //
  // GPT adds a learned row of wpe for each position to the stream. Llama adds nothing. It takes the
  // d numbers of a query (or key) as d / 2 points in the plane, and turns point k of position t by
  // the angle t theta^(-2k/d). The first points turn fast and tell near positions apart, the last
  // ones turn slowly and tell far ones apart.
  static Tensor turned(const Tensor& x, int64_t start = 0) {  // (..., T, d)
    const int64_t T = x.size(-2), half = x.size(-1) / 2;
    const Tensor t = arange(start, start + T).to(x.dtype()).unsqueeze(1),
                 k = arange(half).to(x.dtype()),
                 angle = t * exp(k * (-std::log(10000.0) / static_cast<double>(half)));
    const Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return cat({a * cos(angle) - b * sin(angle), b * cos(angle) + a * sin(angle)}, -1);
  }

  void step_2() {
    // If both are turned, only the difference of their angles is left in q . k. So a score depends
    // on how far apart two positions are, and not on where they stand. There is no table to learn,
    // and none that ends.
    manual_seed(1);
    const Tensor q = randn({1, 8}, f64), k = randn({1, 8}, f64);
    for (const int64_t at : {3, 103, 1003}) {
      const double score = sum(turned(q, at) * turned(k, at - 3)).item();
      print("query at", at, "key at", at - 3, "score", fixed(score, 6));
    }
    print("query at 3 key at 1 score", fixed(sum(turned(q, 3) * turned(k, 1)).item(), 6));
  }

  // ---- 3. Grouped queries: several heads of q share one of k and v
  //
  // When a model writes, it keeps the keys and values of all positions so far: the cache. For long
  // texts the cache is larger than the model, and each step reads all of it. With half as many
  // heads of keys and values, it is half as large. Queries are not kept, so they stay many.
  struct Attention : Module {
    int64_t d;
    bool rotary;
    Linear q_proj, k_proj, v_proj, o_proj;
    Attention(int64_t C, int64_t heads, int64_t kv_heads, bool turns, bool bias)
        : d(C / heads),
          rotary(turns),
          q_proj(C, C, bias),
          k_proj(C, kv_heads * d, bias),
          v_proj(C, kv_heads * d, bias),
          o_proj(C, C, bias) {}
    Tensor split(const Tensor& x) const {  // (B, T, h d) -> (B, h, T, d)
      return x.view({x.size(0), x.size(1), x.size(2) / d, d}).transpose(1, 2);
    }
    Tensor operator()(const Tensor& x) const {
      Tensor q = split(q_proj(x)), k = split(k_proj(x));
      const Tensor v = split(v_proj(x));
      if (rotary) q = turned(q), k = turned(k);
      // The op is what lesson 7 wrote by hand. Head h of q takes head h / 2 of k and v.
      const Tensor y = scaled_dot_product_attention(q, k, v, {.is_causal = true});
      return o_proj(y.transpose(1, 2).reshape(x.shape()));
    }
    INK_FIELDS(q_proj, k_proj, v_proj, o_proj)
  };

  void step_3() {
    const Attention all(32, 4, 4, true, false), grouped(32, 4, 2, true, false);
    for (const Attention* attention : {&all, &grouped}) {
      const Tensor x = zeros({1, 1, 32});
      const int64_t kept = attention->k_proj(x).numel() + attention->v_proj(x).numel();
      print("parameters", attention->num_parameters(), "numbers in the cache for a position", kept);
    }
  }

  // ---- 4. SwiGLU: an MLP with a gate
  //
  // GPT's MLP is proj(gelu(fc(x))). Here two layers read x: gate, which goes through silu(z) =
  // z sigmoid(z), and up. Their product goes on:
  //   down(silu(gate(x)) * up(x))
  // So one half of the MLP says how much of the other half passes. Its third matrix is paid for by
  // width: 8/3 C instead of 4 C.
  struct MLP : Module {
    Linear fc, proj;
    std::optional<Linear> up;
    MLP(int64_t C, bool swiglu, bool bias)
        : fc(C, swiglu ? (8 * C / 3 + 31) / 32 * 32 : 4 * C, bias),
          proj(fc.weight.size(0), C, bias) {
      if (swiglu) up.emplace(C, fc.weight.size(0), bias);
    }
    Tensor operator()(const Tensor& x) const {
      const Tensor a = fc(x);
      return proj(up ? a * sigmoid(a) * (*up)(x) : gelu(a));
    }
    INK_FIELDS(fc, up, proj)  // gate_proj, up_proj and down_proj in nn/llama.h
  };

  void step_4() {
    for (const bool swiglu : {false, true}) {
      const MLP mlp(192, swiglu, false);
      print(swiglu ? "SwiGLU" : "GELU  ", "width", mlp.fc.weight.size(0), "parameters",
            mlp.num_parameters());
    }
  }

  // ---- 5. The model, and what each part buys
  struct Parts {
    const char* name;
    bool rms_norm = false, rotary = false, grouped = false, swiglu = false;
  };
  struct Block : Module {
    Attention self_attn;
    MLP mlp;
    Norm ln_1, ln_2;
    Block(int64_t C, const Parts& p)
        : self_attn(C, 4, p.grouped ? 2 : 4, p.rotary, !p.rms_norm),
          mlp(C, p.swiglu, !p.rms_norm),
          ln_1(C, p.rms_norm),
          ln_2(C, p.rms_norm) {}
    Tensor operator()(Tensor x) const {
      x = x + self_attn(ln_1(x));
      return x + mlp(ln_2(x));
    }
    INK_FIELDS(self_attn, mlp, ln_1, ln_2)
  };
  struct Model : Module {
    Embedding wte;
    std::optional<Embedding> wpe;
    ModuleList<Block> layers;
    Norm norm;
    Linear lm_head;
    Model(int64_t V, int64_t T, int64_t C, const Parts& p)
        : wte(V, C), layers(2, C, p), norm(C, p.rms_norm), lm_head(C, V, !p.rms_norm) {
      if (!p.rotary) wpe.emplace(T, C);
    }
    Tensor operator()(const Tensor& ids) const {  // (B, T) -> (B, T, V)
      Tensor x = wte(ids);
      if (wpe) x = x + (*wpe)(arange(ids.size(1)));
      for (const Block& block : layers) x = block(x);
      return lm_head(norm(x));
    }
    INK_FIELDS(wte, wpe, layers, norm, lm_head)
  };

  const FablesDataset data{Fables(R"(
story: [girl=girls] the [beast=beasts] saw a [thing=things]. It was [colours]. [end]\n
end: Soon [girl] had the [thing]. | No [thing] for [girl].
girls: Ada | Bela | Cleo | Dora
beasts: ape | bear | cat | dog
things: kite | lamp | pan | rope
colours: blue | green | red
)")};
  static constexpr int64_t kBatch = 8, kBlock = 64, kWidth = 32;
  std::optional<Model> llama;

  // The mean loss above the best possible one over the last 20 steps.
  double trained(const Model& model) const {
    const int64_t steps = 160;
    AdamW optimizer(decay_matrices(model.named_parameters(), 0.1), {.beta2 = 0.99});
    const Schedule lr = warmup_cosine(1e-2, 1e-3, 20, steps);
    double excess = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const Batch batch = data.train_batch(/*seed=*/1, step, kBatch, kBlock);
      const Tensor x = from_vector(batch.x, {kBatch, kBlock}),
                   y = from_vector(batch.y, {kBatch, kBlock});
      const Tensor loss = cross_entropy(model(x), y);
      optimizer.zero_grad();
      loss.backward();
      clip_grad_norm_(model.parameters(), 1.0);
      optimizer.set_lr(lr(step));
      optimizer.step();
      if (step >= steps - 20) excess += loss.item() - mean(tensor(batch.best_possible)).item();
    }
    return excess / 20;
  }

  void step_5() {
    // Each model has one part more of Llama's than the one before, and sees the same 160 batches of
    // lesson 7's language. The best possible loss is known, so the excess says what is not learned
    // yet.
    context().default_dtype = f64;  // the same digits on every machine
    for (const Parts& parts :
         {Parts{"GPT"}, Parts{"+ RMSNorm, no biases", true},
          Parts{"+ rotary positions", true, true}, Parts{"+ grouped queries", true, true, true},
          Parts{"+ SwiGLU: Llama", true, true, true, true}}) {
      manual_seed(1);
      llama.emplace(data.tokenizer().vocab_size(), kBlock, kWidth, parts);
      print(fixed(trained(*llama), 3), "with", llama->num_parameters(), "parameters:", parts.name);
    }
    // On one seed of a small task, the order of neighbours means little. What the parts bought in
    // large models is in their papers: Zhang and Sennrich 2019, Su et al. 2021, Ainslie et al. 2023
    // and Shazeer 2020.
  }

  // ---- 6. It is the library's Llama

  void step_6() {
    // nn/llama.h has the same parameters in the same order, and its ops are fused: rms_norm, rotary
    // and swiglu. So it takes the weights, and gives the same logits. (It rounds the angles of a
    // step to 32 bits, as Hugging Face's transformers do.)
    GPTConfig sizes;
    sizes.n_layer = 2, sizes.n_head = 4, sizes.n_embd = kWidth;
    sizes.block_size = kBlock, sizes.vocab_size = data.tokenizer().vocab_size();
    LlamaConfig config(sizes);
    config.n_kv_head = 2;
    Llama same(config);
    const std::vector<Tensor> from = llama->parameters(), to = same.parameters();
    {
      const NoGrad no_grad;
      for (size_t i = 0; i < to.size(); ++i) Tensor(to[i]).copy_(from[i]);
    }
    const std::vector<int64_t> ids = data.tokenizer().encode("Ada the dog saw a kite. It was red.");
    const Tensor x = tensor(ids).unsqueeze(0);
    print("tensors:", static_cast<int64_t>(from.size()), "and", static_cast<int64_t>(to.size()));
    print("the same logits:", allclose(same(x), (*llama)(x), 1e-5, 1e-5));

    // To try: turn q and not k. The model still learns, and nothing says that its positions are
    // wrong: which print of step 2 would have told? Then `./run.sh train --model llama --n_kv_head
    // 2` trains a Llama on stories, and `./run.sh draw --model llama` draws its ops.
  }
};

}  // namespace

Lesson lesson_11() {
  using N = Lesson11;
  return lesson<N>("11_llama",
                   {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5, &N::step_6});
}

}  // namespace ink
