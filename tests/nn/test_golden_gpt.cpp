// The GPT against PyTorch's: the same seed, weights, batches and optimizer (golden/gpt.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "autograd/random/generator.h"
#include "nn/gpt.h"
#include "tests/support/test_device.h"
#include "train/optimizer.h"

namespace ink {
namespace {

// The tensors of the fixture by name, and those whose names begin with a prefix, without it.
class Fixture {
 public:
  Fixture() : tensors_(load_golden("gpt.safetensors")) {}

  Tensor operator[](const std::string& name) const {
    for (const auto& [key, tensor] : tensors_) {
      if (key == name) return tensor;
    }
    ADD_FAILURE() << name << " is not in the fixture";
    return {};
  }
  NamedTensors group(const std::string& prefix) const {
    NamedTensors result;
    for (const auto& [key, tensor] : tensors_) {
      if (key.rfind(prefix, 0) == 0) result.emplace_back(key.substr(prefix.size()), tensor);
    }
    return result;
  }

 private:
  NamedTensors tensors_;
};

Fixture fixture() { return {}; }  // read anew: a test leaves no tensor behind

GPT small_gpt() {
  GPTConfig config;
  config.block_size = 16;
  config.vocab_size = 29;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 32;
  return GPT(config);
}

GPT initial_gpt() {
  GPT model = small_gpt();
  model.load_state_dict(fixture().group("initial."));
  return model;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const auto x = a.tolist(), y = b.tolist();
  EXPECT_EQ(a.shape(), b.shape());
  double most = 0;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

TEST(GoldenGPT, TheSameSeedGivesTheSameWeights) {
  manual_seed(1337);
  const GPT model = small_gpt();
  const NamedTensors expected = fixture().group("initial.");
  EXPECT_EQ(model.named_parameters().size(), expected.size());
  std::map<std::string, Tensor> weights;
  for (const auto& [name, tensor] : model.named_parameters()) weights[name] = tensor;
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(weights.count(name), 1u) << name;
    EXPECT_EQ(weights[name].tolist(), tensor.tolist()) << name;
  }
}

TEST(GoldenGPT, EveryGradientOfTheFirstStep) {
  const GPT model = initial_gpt();
  const auto batch = [](const char* name) { return fixture()[name].select(0, 0); };
  model.loss(batch("ids"), batch("targets")).backward();
  std::map<std::string, Tensor> grads;
  for (const auto& [name, tensor] : model.named_parameters()) grads[name] = tensor.grad();
  double worst = 0;
  for (const auto& [name, expected] : fixture().group("grad.")) {
    ASSERT_TRUE(grads[name].defined()) << name;
    const double error = largest_difference(grads[name], expected) / largest(expected.tolist());
    EXPECT_LE(error, 1e-5) << name;
    worst = std::max(worst, error);
  }
  RecordProperty("worst", detail::text(worst));
  EXPECT_EQ(grads.size(), fixture().group("grad.").size());
}

TEST(GoldenGPT, TwentyStepsOfAdamW) {
  const GPT model = initial_gpt();
  AdamWOptions options;
  options.lr = 1e-3;
  options.beta1 = 0.9;
  options.beta2 = 0.95;
  options.grad_clip = 1;
  AdamW optimizer(decay_matrices(model.named_parameters(), 0.1), options);
  const std::vector<double> losses = fixture()["losses"].tolist();
  ASSERT_EQ(losses.size(), 20u);
  double worst = 0;
  for (int64_t step = 0; step < 20; ++step) {
    const Tensor loss =
        model.loss(fixture()["ids"].select(0, step), fixture()["targets"].select(0, step));
    const double expected = losses[static_cast<size_t>(step)];
    const double error = std::abs(loss.item() - expected) / expected;
    EXPECT_LE(error, 1e-5) << "step " << step << ": " << loss.item() << " beside " << expected;
    worst = std::max(worst, error);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step(loss);
  }
  RecordProperty("worst", detail::text(worst));
}

TEST(GoldenGPT, GeneratesTheSameTokens) {
  GPT model = small_gpt();
  model.load_state_dict(fixture().group("trained."));
  Generator generator(11);
  GenerateOptions options;
  options.max_new_tokens = 24;  // past block_size
  options.temperature = 0.8;
  options.top_k = 5;
  options.generator = &generator;
  const Tensor text = model.generate(fixture()["prompt"], options);
  EXPECT_EQ(text.tolist<int64_t>(), fixture()["generated"].tolist<int64_t>());
}

}  // namespace
}  // namespace ink
