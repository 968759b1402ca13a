// GPTs that replace a step: rotary positions and ALiBi, from one layer to a resumed run.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/inspect/gradcheck.h"
#include "autograd/random/generator.h"
#include "nn/gpt.h"
#include "nn/gradcheck_module.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"
#include "train/cli/command_line.h"
#include "train/trainer.h"

namespace ink {
namespace {

// Turns pairs of each head's features by an angle for each position. Su et al. 2021.
struct RotaryAttention : CausalSelfAttention {
  UnsavedBuffer cosines, sines;  // (block_size, d / 2)

  explicit RotaryAttention(const GPTConfig& c) : CausalSelfAttention(c) {
    const int64_t half = c.n_embd / c.n_head / 2;
    const Tensor speed = exp(arange(half, f32) * (-std::log(10000.0) / static_cast<double>(half)));
    const Tensor angle = arange(c.block_size, f32).unsqueeze(1) * speed;
    cosines = cos(angle);
    sines = sin(angle);
  }
  void prepare_scores(Tensor& q, Tensor& k, AttentionOptions&, int64_t start) const override {
    q = turned(q, start);
    k = turned(k, start);
  }
  Tensor turned(const Tensor& x, int64_t start) const {
    const Tensor c = cosines.narrow(0, start, x.size(2)), s = sines.narrow(0, start, x.size(2));
    const std::vector<Tensor> halves = split(x, c.size(1), 3);
    return cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, 3);
  }
  INK_FIELDS(CausalSelfAttention, cosines, sines)
};

// The one of nn/README.md (test_own_parts.cpp compares them).
struct AlibiAttention : CausalSelfAttention {
  UnsavedBuffer bias;  // (n_head, 1, block_size): slope times position
  explicit AlibiAttention(const GPTConfig& c) : CausalSelfAttention(c) {
    const Tensor slopes = pow(2.0, (arange(c.n_head, f32) + 1) * (-8.0 / c.n_head));
    bias = slopes.view({c.n_head, 1, 1}) * arange(c.block_size, f32);
  }
  // All scores of query i share -m i, and softmax ignores it: m (j - i) is written m j.
  void prepare_scores(Tensor& q, Tensor&, AttentionOptions& options, int64_t start) const override {
    options.attn_mask = bias.narrow(2, 0, start + q.size(2));
  }
  INK_FIELDS(CausalSelfAttention, bias)  // the base first
};

struct AlibiGPT : GPT {
  explicit AlibiGPT(const GPTConfig& c) : GPT(c, make_attention<AlibiAttention>) {
    wpe = Embedding();  // no table of positions, neither trained nor saved
  }
  Tensor add_positions(const Tensor& x, int64_t) const override { return x; }
  bool uses_caches() const override { return true; }  // without this line, generate is slower
};

template <class Attention>
struct Without : GPT {  // a table of positions
  explicit Without(const GPTConfig& c) : GPT(c, make_attention<Attention>) { wpe = Embedding(); }
  Tensor add_positions(const Tensor& x, int64_t) const override { return x; }
  bool uses_caches() const override { return true; }
};
template <class Attention>
struct WithoutCaches : Without<Attention> {
  using Without<Attention>::Without;
  bool uses_caches() const override { return false; }
};

GPTConfig tiny() {
  return {.block_size = 6, .vocab_size = 7, .n_layer = 2, .n_head = 2, .n_embd = 8};
}

// softmax(scores) v through c_proj, with scores (B, H, T, T) of q and k (B, H, T, d).
template <class Scores>
Tensor by_hand(const CausalSelfAttention& attn, const Tensor& x, Scores&& scores) {
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2), H = attn.n_head;
  std::vector<Tensor> qkv = split(attn.c_attn(x), C, 2);
  for (Tensor& t : qkv) t = t.view({B, T, H, C / H}).transpose(1, 2);
  const Tensor later = arange(T, i64) > arange(T, i64).unsqueeze(1);
  const Tensor s = masked_fill(scores(qkv[0], qkv[1]), later, -INFINITY);
  return attn.c_proj(matmul(softmax(s), qkv[2]).transpose(1, 2).reshape({B, T, C}));
}

TEST(RotaryAttention, IsTheFormula) {
  manual_seed(1);
  RotaryAttention attn(tiny());
  attn.to(f64);
  const Tensor x = randn({2, 5, 8}, f64);
  // A score is a sum over pairs of features: q_i and k_j turned by their distance i - j.
  const Tensor expected = by_hand(attn, x, [](const Tensor& q, const Tensor& k) {
    Tensor scores = zeros({2, 2, 5, 5}, f64);
    const Tensor distance = arange(5, f64).unsqueeze(1) - arange(5, f64);
    for (int64_t f = 0; f < 2; ++f) {
      const Tensor angle = distance * std::pow(10000.0, -static_cast<double>(f) / 2);
      const auto feature = [](const Tensor& t, int64_t i) { return t.narrow(3, i, 1); };
      const Tensor q1 = feature(q, f), q2 = feature(q, f + 2);
      const Tensor k1 = feature(k, f).transpose(2, 3), k2 = feature(k, f + 2).transpose(2, 3);
      scores = scores + cos(angle) * (q1 * k1 + q2 * k2) + sin(angle) * (q1 * k2 - q2 * k1);
    }
    return scores / 2.0;
  });
  EXPECT_TRUE(allclose(attn(x), expected, 1e-6, 1e-7));
}

TEST(AlibiAttention, IsTheFormula) {
  manual_seed(1);
  AlibiAttention attn(tiny());
  attn.to(f64);
  const Tensor x = randn({2, 5, 8}, f64);
  const Tensor expected = by_hand(attn, x, [](const Tensor& q, const Tensor& k) {
    const Tensor distance = arange(5, f64).unsqueeze(1) - arange(5, f64);
    const Tensor slopes = tensor({1.0 / 16, 1.0 / 256}, f64).view({2, 1, 1});
    return matmul(q, k.transpose(2, 3)) / 2.0 - slopes * distance;
  });
  EXPECT_TRUE(allclose(attn(x), expected, 1e-6, 1e-7));
}

// What holds for both.
template <class Attention>
struct GptVariant : testing::Test {};
using Variants = testing::Types<RotaryAttention, AlibiAttention>;
TYPED_TEST_SUITE(GptVariant, Variants);

TYPED_TEST(GptVariant, PassesTheGradientCheck) {
  manual_seed(2);
  TypeParam attn(tiny());
  GradcheckReport report = gradcheck_module(attn, randn({2, 5, 8}));
  EXPECT_TRUE(report.ok) << report;
  Without<TypeParam> model(tiny());
  model.to(f64);
  const Tensor ids = randint(7, {2, 5});
  GradcheckOptions options;
  options.max_elements = 0;  // along random directions
  report =
      gradcheck([&](const auto&) { return model.loss(ids, ids); }, model.parameters(), options);
  EXPECT_TRUE(report.ok) << report;
}

TYPED_TEST(GptVariant, HasTheNamesOfAGptWithoutPositions) {
  NamedTensors state = GPT(tiny()).state_dict();
  std::vector<std::string> expected, names;
  for (const auto& entry : state)
    if (entry.first != "wpe.weight") expected.push_back(entry.first);
  for (const auto& entry : Without<TypeParam>(tiny()).state_dict()) names.push_back(entry.first);
  EXPECT_EQ(names, expected);
}

TYPED_TEST(GptVariant, KnowsPositions) {
  manual_seed(3);
  const Without<TypeParam> model(tiny());
  const NoGrad no_grad;
  const Tensor a = model(tensor({{1, 2, 3}}, i64)), b = model(tensor({{2, 1, 3}}, i64));
  EXPECT_GT(max(abs(a.select(1, 2) - b.select(1, 2))).item(), 1e-6);
}

TYPED_TEST(GptVariant, WritesTheSameWithCaches) {
  manual_seed(4);
  Without<TypeParam> model(tiny());
  WithoutCaches<TypeParam> without(tiny());
  without.load_state_dict(model.state_dict());
  const NoGrad no_grad;
  const Tensor ids = randint(7, {2, 6});
  const Tensor whole = model.features(ids);
  std::vector<KVCache> caches(2, KVCache(6));
  std::vector<Tensor> parts;
  for (const auto& [start, n] : {std::pair<int64_t, int64_t>{0, 3}, {3, 1}, {4, 2}})
    parts.push_back(model.features(ids.narrow(1, start, n), &caches));
  EXPECT_TRUE(allclose(cat(parts, 1), whole, 1e-5, 1e-5));
  const GenerateOptions options{.max_new_tokens = 12, .temperature = 0};  // beyond block_size
  EXPECT_TRUE(equal(model.generate(ids.narrow(1, 0, 2), options),
                    without.generate(ids.narrow(1, 0, 2), options)));
}

TYPED_TEST(GptVariant, ShowsItsWeights) {
  manual_seed(5);
  const Without<TypeParam> model(tiny());
  const Tensor ids = randint(7, {1, 5});
  const Tensor shown = model.attention_weights(ids)[0];
  const auto& attn = *model.h[0]->attn;
  const Tensor x = model.h[0]->ln_1(model.wte(ids));
  // The mixture of values by these weights is the layer's output.
  const Tensor v = split(attn.c_attn(x), 8, 2)[2].view({1, 5, 2, 4}).transpose(1, 2);
  const Tensor mixed = matmul(shown, v).transpose(1, 2).reshape({1, 5, 8});
  EXPECT_TRUE(allclose(attn(x), attn.c_proj(mixed), 1e-5, 1e-6));
}

// The loss and the gradients of one step.
std::vector<Tensor> step_of(GPT& model, const Tensor& ids) {
  model.zero_grad();
  const Tensor loss = model.loss(ids, ids);
  loss.backward();
  std::vector<Tensor> all{loss.detach()};
  for (const Tensor& p : model.parameters()) all.push_back(p.grad());
  return all;
}

TYPED_TEST(GptVariant, TrainsRecomputedComposedAndInBf16) {
  manual_seed(6);
  GPTConfig config = tiny();
  config.block_size = 40;  // several tiles of keys
  Without<TypeParam> model(config);
  const Tensor ids = randint(7, {3, 40});
  const std::vector<Tensor> fused = step_of(model, ids);
  const auto expect_close = [&](const std::vector<Tensor>& got, double rtol, double atol) {
    for (size_t i = 0; i < fused.size(); ++i)
      EXPECT_TRUE(allclose(got[i], fused[i], rtol, atol)) << i;
  };
  {
    const Recompute guard;
    const std::vector<Tensor> again = step_of(model, ids);
    for (size_t i = 0; i < fused.size(); ++i) EXPECT_TRUE(same_bits(again[i], fused[i])) << i;
  }
  {
    const Composed guard;
    expect_close(step_of(model, ids), 1e-4, 1e-5);
  }
  {
    const Autocast guard(bf16);
    EXPECT_EQ((*model.h[0]->attn)(randn({1, 4, 8}, f32).to(bf16)).dtype(), bf16);
    expect_close(step_of(model, ids), 0.1, 0.01);
  }
}

// Adds the model, and gives it a small run.
template <class Attention>
TrainConfig config_of(const std::string& name) {
  add_model<Without<Attention>>(name);
  TrainConfig config;
  config.model = name;
  config.device = test_device_name();
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  config.block_size = 32;
  config.batch_size = 4;
  config.batch_parts = 2;
  config.max_iters = 40;
  config.warmup_iters = 2;
  config.eval_iters = 2;
  config.learning_rate = 1e-2;
  return config;
}
template <class Attention>
constexpr const char* kName = std::is_same_v<Attention, RotaryAttention> ? "rotary" : "alibi";

TYPED_TEST(GptVariant, TrainsInPartsOfABatch) {
  const TempFolder folder;
  TrainConfig config = config_of<TypeParam>(std::string(kName<TypeParam>) + "_in_parts");
  config.out_dir = folder / "out";
  const auto loss = [&](int64_t parts) {
    config.batch_parts = parts;
    Trainer trainer(config);
    for (int i = 0; i < 5; ++i) trainer.step();
    return trainer.progress().loss;
  };
  EXPECT_NEAR(loss(1), loss(3), 1e-4);
}

TYPED_TEST(GptVariant, IsTrainedByTheTrainerAndResumed) {
  const TempFolder folder;
  const std::string name = kName<TypeParam>;
  TrainConfig config = config_of<TypeParam>(name);
  config.out_dir = folder / "straight";
  Trainer straight(config);
  const double before = straight.evaluate().loss;
  for (int i = 0; i < 40; ++i) straight.step();
  EXPECT_LT(straight.evaluate().loss, before - 0.5);
  straight.save("ckpt");

  config.out_dir = folder / "resumed";
  {
    Trainer first(config);
    for (int i = 0; i < 25; ++i) first.step();
    first.save("ckpt");
  }
  config.init_from = "resume";
  Trainer second(config);
  EXPECT_EQ(second.steps_done(), 25);
  while (second.steps_done() < 40) second.step();
  second.save("ckpt");
  const LoadedModel a = load_model(folder / "straight"), b = load_model(folder / "resumed");
  EXPECT_NE(dynamic_cast<const Without<TypeParam>*>(a.model.get()), nullptr);
  const NamedTensors mine = a.model->state_dict(), other = b.model->state_dict();
  for (size_t i = 0; i < mine.size(); ++i)
    EXPECT_TRUE(same_bits(mine[i].second, other[i].second)) << mine[i].first;

  config.model = "gpt";
  EXPECT_EQ(error_of([&] { Trainer trainer(config); }),
            "resume: model is \"gpt\", but " + (folder / "resumed/ckpt").string() + " has \"" +
                name + "\"; leave the option out, or start from scratch");
}

struct NoisyAttention : CausalSelfAttention {
  using CausalSelfAttention::CausalSelfAttention;
  void prepare_scores(Tensor& q, Tensor&, AttentionOptions&, int64_t) const override {
    if (training) q = q + 0.05 * randn_like(q);
  }
};

// What a model draws from the default generator is a function of seed, step, micro-batch and part.
// What a loop draws between steps goes on where the checkpoint was saved.
TEST(Models, RandomNumbersBelongToTheRun) {
  const TempFolder folder;
  TrainConfig config = config_of<NoisyAttention>("noisy");
  config.gradient_accumulation_steps = 2;
  const auto go_on = [](Trainer& trainer, int64_t steps) {
    std::vector<double> seen;
    while (trainer.steps_done() < steps) {
      trainer.step();
      seen.insert(seen.end(), {trainer.progress().loss, rand({}).item()});
    }
    trainer.save("ckpt");
    return seen;
  };
  std::vector<double> first;
  int runs = 0;
  for (const int64_t threads : {1, 2, 3, 3}) {  // of OpenMP
    const int before = omp_get_max_threads();
    omp_set_num_threads(static_cast<int>(threads));
    config.threads = 2;
    config.out_dir = folder / ("whole" + std::to_string(runs++));
    Trainer trainer(config);
    const std::vector<double> seen = go_on(trainer, 6);
    if (first.empty()) first = seen;
    EXPECT_EQ(seen, first) << threads;
    omp_set_num_threads(before);
  }
  config.out_dir = folder / "part";
  Trainer begun(config);
  std::vector<double> seen = go_on(begun, 3);
  manual_seed(99);  // another process
  config.init_from = "resume";
  Trainer resumed(config);
  const std::vector<double> rest = go_on(resumed, 6);
  seen.insert(seen.end(), rest.begin(), rest.end());
  EXPECT_EQ(seen, first);
  EXPECT_EQ(resumed.evaluate(true).loss, resumed.evaluate(true).loss);
}

TEST(Models, TheProgramTrainsWhatWasAdded) {
  const TempFolder folder;
  add_model<AlibiGPT>("alibi2");
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--out_dir", folder / "run"});
    words.insert(words.begin(), "inkling");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
    const std::string out = testing::internal::GetCapturedStdout();
    return std::to_string(code) + ": " + testing::internal::GetCapturedStderr() + out;
  };
  const std::string trained = run({"train", "--model", "alibi2", "--n_layer", "1", "--n_embd", "16",
                                   "--block_size", "16", "--max_iters", "4", "--eval_iters", "1"});
  EXPECT_EQ(trained.substr(0, 2), "0:") << trained;
  EXPECT_NE(trained.find("alibi2: 1 layer,"), std::string::npos) << trained;
  EXPECT_EQ(run({"train", "--init_from", "resume", "--max_iters", "6"}).substr(0, 2), "0:");
  EXPECT_EQ(run({"sample", "--max_new_tokens", "20"}).substr(0, 2), "0:");
  const std::string unknown = run({"train", "--model", "other"});
  EXPECT_EQ(unknown.substr(0, 2), "2:");
  EXPECT_NE(unknown.find("--model is 'other'; expected alibi"), std::string::npos) << unknown;
}

struct Forgotten : CausalSelfAttention {
  Parameter scale = ones({2});
  using CausalSelfAttention::CausalSelfAttention;
};

TEST(Models, SayWhatIsWrong) {
  EXPECT_EQ(error_of([] { GPT(tiny(), make_attention<Forgotten>); }),
            "Forgotten: has members of its own and no INK_FIELDS; name them there, after the class "
            "that it extends: INK_FIELDS(Base, member)");
  EXPECT_EQ(error_of([] { add_model<GPT>("gpt"); }),
            "add_model: the name gpt is taken; choose another");
  for (const char* name : {"a b", "-a", "a\n"})
    EXPECT_EQ(error_of([&] { add_model<GPT>(name); }),
              std::string("add_model: expected a name for a command line, without spaces and a - "
                          "in front, got \"") +
                  name + "\"");
  const std::string unknown = error_of([] { make_model("other", tiny()); });
  EXPECT_EQ(unknown.rfind("model is 'other'; expected ", 0), 0u) << unknown;
}

}  // namespace
}  // namespace ink
