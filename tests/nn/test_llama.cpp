// Llama against Hugging Face's models of its kin (tests/golden/llama.safetensors), and against
// itself: cached decoding, windows, gradients.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "nn/gpt.h"
#include "nn/gradcheck_module.h"
#include "nn/llama.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"
#include "train/optimizer.h"

namespace ink {
namespace {

RopeScaling scaling_of(const nlohmann::json& s) {
  RopeScaling scaling;
  if (!s.contains("rope_scaling")) return scaling;
  const auto& rope = s.at("rope_scaling");
  scaling.rope_type = rope.at("rope_type").get<std::string>();
  scaling.factor = rope.at("factor").get<double>();
  scaling.original_max_position_embeddings =
      rope.value("original_max_position_embeddings", int64_t{0});
  scaling.low_freq_factor = rope.value("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = rope.value("high_freq_factor", scaling.high_freq_factor);
  scaling.beta_fast = rope.value("beta_fast", scaling.beta_fast);
  scaling.beta_slow = rope.value("beta_slow", scaling.beta_slow);
  return scaling;
}

LlamaConfig config_of(const nlohmann::json& s) {
  LlamaConfig c;
  c.block_size = s.at("block_size").get<int64_t>();
  c.vocab_size = s.at("vocab_size").get<int64_t>();
  c.n_layer = s.at("n_layer").get<int64_t>();
  c.n_head = s.at("n_head").get<int64_t>();
  c.n_embd = s.at("n_embd").get<int64_t>();
  c.n_kv_head = s.at("n_kv_head").get<int64_t>();
  c.intermediate_size = s.at("intermediate_size").get<int64_t>();
  c.rope_theta = s.value("rope_theta", c.rope_theta);
  c.rms_norm_eps = s.value("rms_norm_eps", c.rms_norm_eps);
  c.tie_word_embeddings = s.value("tie_word_embeddings", false);
  c.head_dim = s.value("head_dim", int64_t{0});
  c.attention_bias = s.value("attention_bias", false);
  c.qk_norm = s.value("qk_norm", false);
  c.sliding_window = s.value("sliding_window", int64_t{0});
  c.rope_scaling = scaling_of(s);
  return c;
}

// What the fixture holds of one model.
struct Expected {
  nlohmann::json settings;
  NamedTensors tensors;

  std::string name() const { return settings.at("name").get<std::string>(); }
  Tensor of(const std::string& what) const {
    for (const auto& [key, tensor] : tensors)
      if (key == name() + "/" + what) return tensor;
    ADD_FAILURE() << name() << " has no " << what;
    return {};
  }
};

std::vector<Expected> fixture() {
  Metadata metadata;
  const NamedTensors tensors =
      load(std::string(INKLING_SOURCE_DIR) + "/tests/golden/llama.safetensors", &metadata);
  std::vector<Expected> models;
  std::istringstream lines(metadata.at("models"));
  for (std::string line; std::getline(lines, line);)
    models.push_back({nlohmann::json::parse(line), tensors});
  return models;
}

TEST(Llama, IsHuggingFaces) {
  const int64_t B = 2, T = 12;
  const std::vector<Expected> models = fixture();
  EXPECT_EQ(models.size(), 9u);
  for (const Expected& expected : models) {
    SCOPED_TRACE(expected.name());
    const LlamaConfig config = config_of(expected.settings);
    Llama model(config);
    model.to(f64);
    manual_seed(expected.settings.at("seed").get<uint64_t>());
    {
      const NoGrad no_grad;
      for (auto& [name, p] : model.named_parameters())
        p.copy_(randn(p.shape(), f32).to(f64) * 0.2 +
                (name.find("norm") != std::string::npos ? 1.0 : 0.0));
    }
    const Tensor ids = randint(config.vocab_size, {B, T + 1});
    const Tensor x = ids.narrow(1, 0, T).contiguous(), y = ids.narrow(1, 1, T).contiguous();

    EXPECT_TRUE(allclose(log_softmax(model(x)), expected.of("log_probs").to(f64), 0, 1e-5));

    AdamW optimizer(model.named_parameters(),
                    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      model.zero_grad();
      const Tensor loss = model.loss(x, y);
      losses.push_back(loss.item());
      loss.backward();
      for (auto& [name, p] : model.named_parameters()) {
        if (step > 0) continue;
        const Tensor grad = expected.of("grad/" + name).to(f64);
        const double most = amax(abs(grad)).item();
        EXPECT_TRUE(allclose(p.grad(), grad, 0, 1e-5 * most)) << name;
      }
      optimizer.step();
    }
    EXPECT_TRUE(allclose(tensor(losses, f64), expected.of("losses"), 0, 1e-5));
  }
}

// To the bit, of models that people have: Llama 3.1 and 3.2, and a Llama 2 with yarn.
TEST(Llama, TurnsByTheFrequenciesOfTransformers) {
  const RopeScaling llama{
      .rope_type = "llama3", .factor = 8, .original_max_position_embeddings = 8192};
  RopeScaling small_llama = llama;
  small_llama.factor = 32;
  const RopeScaling yarn{
      .rope_type = "yarn", .factor = 16, .original_max_position_embeddings = 4096};
  const std::vector<float> of_llama = rope_frequencies(128, 500000, llama),
                           of_small = rope_frequencies(64, 500000, small_llama),
                           of_yarn = rope_frequencies(128, 10000, yarn);
  EXPECT_EQ(of_llama[33], 0x1.47e21p-12f);
  EXPECT_EQ(of_llama[34], 0x1.765ba4p-13f);
  EXPECT_EQ(of_small[17], 0x1.9731eep-14f);
  EXPECT_EQ(of_yarn[30], 0x1.17685ap-7f);
  EXPECT_EQ(of_yarn[34], 0x1.e6b9a4p-9f);
  EXPECT_EQ(of_yarn[43], 0x1.6f81a8p-12f);
}

LlamaConfig small() {
  LlamaConfig c(
      GPTConfig{.block_size = 24, .vocab_size = 13, .n_layer = 2, .n_head = 4, .n_embd = 16});
  c.n_kv_head = 2;
  return c;
}

std::vector<LlamaConfig> variants() {
  std::vector<LlamaConfig> all(7, small());
  all[1].sliding_window = 3;
  all[2].parallel_block = true;
  all[3].logit_softcap = 0.5;
  all[4].rope_interleaved = true;
  all[5].qk_norm = all[5].attention_bias = true;
  all[6].tie_word_embeddings = true;
  return all;
}

// Whatever chunks the tokens come in, the logits are those of all at once.
TEST(Llama, CachedLogitsAreThoseOfTheWhole) {
  const NoGrad no_grad;
  manual_seed(1);
  const Tensor ids = randint(13, {2, 20});
  for (size_t i = 0; i < variants().size(); ++i) {
    SCOPED_TRACE(i);
    Llama model(variants()[i]);
    model.to(f64);
    for (const int64_t chunk : {1, 3, 7, 20}) {
      DecodeCache cache = model.make_cache();
      for (int64_t start = 0; start < 20; start += chunk) {
        const int64_t count = std::min<int64_t>(chunk, 20 - start);
        const Tensor logits = model.next_logits(ids.narrow(1, start, count), &cache);
        const Tensor whole = model(ids.narrow(1, 0, start + count)).select(1, -1);
        EXPECT_TRUE(allclose(logits, whole, 1e-12, 1e-12)) << chunk << ' ' << start;
      }
    }
  }
}

// Under Strict even its bits are, in any chunks, in any batch and at any position, of every model.
TEST(Strict, ACachedTokenHasTheBitsOfTheWholeText) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "Strict is of the CPU";
  const NoGrad no_grad;
  manual_seed(3);
  std::vector<std::unique_ptr<LanguageModel>> models;
  GPTConfig sizes;
  sizes.block_size = 60, sizes.vocab_size = 61, sizes.n_layer = 2, sizes.n_head = 6;
  sizes.n_embd = 96;
  models.push_back(std::make_unique<GPT>(sizes));
  for (LlamaConfig c : variants()) {
    static_cast<GPTConfig&>(c) = sizes;
    c.bias = false;
    c.n_kv_head = 2, c.head_dim = 0, c.intermediate_size = 0;
    if (c.sliding_window > 0) c.sliding_window = 17;
    models.push_back(std::make_unique<Llama>(c));
  }
  const Tensor ids = randint(61, {3, 50});
  const Strict strict;
  for (const DType products : {f32, bf16}) {
    const Autocast autocast(products);
    for (const auto& model : models) {
      model->eval();
      const Tensor whole = (*model)(ids);
      EXPECT_EQ((*model)(ids.narrow(1, 0, 33)).tolist(), whole.narrow(1, 0, 33).tolist());
      for (const int64_t rows : {1, 3}) {
        DecodeCache cache = model->make_cache();
        int64_t start = 0;
        for (const int64_t chunk : {1, 20, 1, 2, 5, 6, 1, 14}) {
          const Tensor logits =
              model->next_logits(ids.narrow(0, 0, rows).narrow(1, start, chunk), &cache);
          cache.size = start += chunk;
          ASSERT_EQ(logits.tolist(), whole.narrow(0, 0, rows).select(1, start - 1).tolist())
              << "model " << &model - models.data() << ", " << products << ", token " << start - 1;
        }
      }
    }
  }
}

TEST(Llama, PassesTheGradientCheck) {
  for (size_t i = 0; i < variants().size(); ++i) {
    SCOPED_TRACE(i);
    LlamaConfig c = variants()[i];
    c.n_layer = 1;
    manual_seed(2);
    Llama model(c);
    const Tensor ids = randint(13, {2, 5});
    const auto result = gradcheck_module(model, ids);
    EXPECT_TRUE(result.ok) << result;
  }
}

// A key that is out of the window has no influence, one that is just inside has.
TEST(Llama, WindowEndsWhereItSays) {
  const NoGrad no_grad;
  manual_seed(3);
  LlamaConfig c = small();
  c.n_layer = 1;
  c.sliding_window = 4;
  Llama model(c);
  const Tensor ids = randint(13, {1, 10});
  const Tensor before = model(ids);
  const auto changes = [&](int64_t at) {
    Tensor other = ids.clone();
    other.select(1, at).copy_((ids.select(1, at) + 1) % 13);
    return !equal(model(other).select(1, 9), before.select(1, 9));
  };
  EXPECT_TRUE(changes(9));
  EXPECT_TRUE(changes(6));
  EXPECT_FALSE(changes(5));
  EXPECT_FALSE(changes(0));
}

TEST(Llama, SoftcapBoundsLogits) {
  const NoGrad no_grad;
  manual_seed(4);
  LlamaConfig c = small();
  c.logit_softcap = 0.01;
  Llama capped(c);
  manual_seed(4);
  c.logit_softcap = 0;
  Llama plain(c);
  const Tensor ids = randint(13, {2, 5});
  EXPECT_TRUE(allclose(capped(ids), 0.01 * tanh(plain(ids) / 0.01)));
  EXPECT_TRUE(allclose(capped.loss(ids, ids), cross_entropy(capped(ids), ids)));
}

// In training, dropout takes from the weights of attention and from both branches.
TEST(Llama, DropsWeightsAndBranchesInTraining) {
  const ContextGuard guard;
  for (const bool parallel : {false, true}) {
    manual_seed(6);
    LlamaConfig c = small();
    c.n_kv_head = 4;
    c.parallel_block = parallel;
    c.dropout = 0.4;
    Llama model(c);
    const Tensor ids = randint(13, {2, 6});
    context().random = {.seed = 5};
    const Tensor y = model(ids);
    context().random = {.seed = 5};
    Tensor x = model.model.embed_tokens(ids);
    for (const LlamaBlock& block : model.model.layers) {
      const Tensor normed = block.input_layernorm(x);
      const LlamaAttention& a = block.self_attn;
      const auto heads = [](const Tensor& t) { return t.view({2, 6, 4, 4}).transpose(1, 2); };
      const Tensor q = model.model.rotary_emb(heads(a.q_proj(normed)), 0),
                   k = model.model.rotary_emb(heads(a.k_proj(normed)), 0);
      const Tensor weights = dropout(attention_weights(q, k, {.is_causal = true}), 0.4),
                   mixed = matmul(weights, heads(a.v_proj(normed)));
      const Tensor attended = a.o_proj(mixed.transpose(1, 2).reshape({2, 6, 16}));
      if (parallel) {
        x = x + dropout(attended + block.mlp(normed), 0.4);
      } else {
        x = x + dropout(attended, 0.4);
        x = x + dropout(block.mlp((*block.post_attention_layernorm)(x)), 0.4);
      }
    }
    EXPECT_TRUE(allclose(y, model.lm_head(model.model.norm(x)), 1e-5, 1e-6)) << parallel;
    model.eval();
    EXPECT_EQ(model(ids).tolist(), model(ids).tolist());
  }
}

TEST(Llama, KnowsItsSizesAndWhereItStarts) {
  manual_seed(7);
  for (const LlamaConfig& c : variants()) {
    int64_t elements = 0;
    for (const auto& [name, p] : Llama(c).named_parameters())
      if (p.dim() == 2) elements += p.numel();
    EXPECT_EQ(c.num_parameters(), elements);
  }
  LlamaConfig c = small();
  EXPECT_EQ(c.checked().intermediate_size, 64);
  c.n_embd = 64, c.n_layer = 8;
  const Llama model(c);
  const LlamaBlock& block = model.model.layers[7];
  const auto deviation = [](const Tensor& x) { return std::sqrt(mean(square(x)).item()); };
  EXPECT_NEAR(deviation(block.mlp.up_proj.weight), 0.02, 0.002);
  for (const Linear* into_residual : {&block.mlp.down_proj, &block.self_attn.o_proj})
    EXPECT_NEAR(deviation(into_residual->weight), 0.02 / 4, 0.0005);
}

TEST(Llama, TheZLossIsOfTrainingAlone) {
  Llama model(small());
  const Tensor ids = randint(13, {2, 5});
  model.z_loss = 0.5;
  const Tensor logits = model(ids).detach();
  const double plain = cross_entropy(logits, ids).item(),
               with_z = cross_entropy(logits, ids, -100, Reduction::mean, 0.5).item();
  EXPECT_NEAR(model.loss(ids, ids).item(), with_z, 1e-5);
  model.eval();
  EXPECT_NEAR(model.loss(ids, ids).item(), plain, 1e-5);
}

TEST(Llama, AttentionWeightsSumToOneAndAreCausal) {
  manual_seed(5);
  Llama model(small());
  model.eval();
  const std::vector<Tensor> layers = model.attention_weights(randint(13, {1, 6}));
  ASSERT_EQ(layers.size(), 2u);
  for (const Tensor& w : layers) {
    EXPECT_EQ(w.shape(), (Shape{4, 6, 6}));
    EXPECT_TRUE(allclose(sum(w, {-1}), ones({4, 6})));
    EXPECT_TRUE(equal(tril(w), w));
  }
}

TEST(Llama, RefusesSizesThatDoNotDivide) {
  LlamaConfig c = small();
  c.n_kv_head = 3;
  EXPECT_EQ(error_of([&] { Llama{c}; }),
            "llama: expected n_head to be a multiple of n_kv_head, got 4 and 3");
  c = small();
  c.head_dim = 5;
  EXPECT_EQ(error_of([&] { Llama{c}; }), "llama: expected an even head_dim, got 5");
  c = small();
  c.rope_scaling.rope_type = "ntk";
  EXPECT_EQ(error_of([&] { Llama{c}; }),
            "rope: expected the rope_type default, linear, llama3 or yarn, got ntk");
  c.rope_scaling = {.rope_type = "yarn", .factor = 2, .original_max_position_embeddings = 8};
  std::swap(c.rope_scaling.beta_fast, c.rope_scaling.beta_slow);
  EXPECT_EQ(error_of([&] { Llama{c}; }),
            "rope: expected beta_slow above 0, and not above beta_fast, got 32 and 1");
  Llama model(small());
  EXPECT_EQ(error_of([&] {
              model(zeros({1, 25}, i64));
            }),
            "rotary: position 24 is beyond the 24 that the tables have");
  EXPECT_EQ(error_of([&] {
              model(zeros({1, 0}, i64));
            }),
            "llama: expected ids (B, T), at least one, got (1, 0)");
}

}  // namespace
}  // namespace ink
