// Mixed precision: dtypes and rounding of every op that Autocast is about, weights rounded once a
// step, and training with it beside f32's and PyTorch's.
#include "autograd/autocast.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/observer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/fused_ops.h"
#include "autograd/io/serialize.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"
#include "train/trainer.h"

namespace ink {
namespace {

constexpr double kHalfUlp = 1.0 / 256;  // of bf16, relative

Tensor numbers(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return randn(shape, f32, generator);
}
Tensor leaf(const Shape& shape, uint64_t seed) { return numbers(shape, seed).requires_grad_(); }

// max|a - b| / max|b|
double error(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const NoGrad no_grad;
  return (max(abs(a.to(f64) - b.to(f64))) / max(abs(b.to(f64)))).item();
}

// As bf16 operands have it, in f64.
Tensor rounded(const Tensor& x) { return x.detach().to(bf16).to(f64).requires_grad_(); }

TEST(Autocast, LinearRoundsOperandsAndSumsInF32) {
  const Tensor x = leaf({3, 257, 48}, 1), w = leaf({29, 48}, 2), b = leaf({29}, 3);
  const Tensor dy = numbers({3, 257, 29}, 4).to(bf16);
  Tensor y;
  {
    const Autocast guard;
    y = linear(x, w, b);
  }
  EXPECT_EQ(y.dtype(), bf16);
  const Grads got = grad({y}, {x, w, b}, {dy});
  const Tensor x64 = rounded(x), w64 = rounded(w), b64 = rounded(b);
  const Tensor exact = linear(x64, w64, b64);
  EXPECT_LE(error(y, exact), kHalfUlp);
  const Grads expected = grad({exact}, {x64, w64, b64}, {dy.to(f64)});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].dtype(), f32);
    EXPECT_LE(error(got[i], expected[i]), 1e-5) << i;  // never rounded to bf16
  }
}

TEST(Autocast, LinearOfBf16ActivationsGivesThemBf16Gradients) {
  const Tensor x = numbers({33, 48}, 1).to(bf16).requires_grad_(), w = leaf({29, 48}, 2);
  const Autocast guard;
  const Grads got = grad({linear(x, w)}, {x, w}, {numbers({33, 29}, 3).to(bf16)});
  EXPECT_EQ(got[0].dtype(), bf16);
  EXPECT_EQ(got[1].dtype(), f32);
}

TEST(Autocast, WeightGradientsAccumulateInF32) {
  const Tensor x = numbers({2, 48}, 1).to(bf16), w = leaf({29, 48}, 2), b = leaf({29}, 3);
  const auto step = [&](double scale) {
    const Autocast guard;
    linear(x, w, b).backward(numbers({2, 29}, 4).to(bf16) * scale);
  };
  step(1);
  const Tensor first_w = w.grad().clone(), first_b = b.grad().clone();
  const float* memory = w.grad().data<float>();
  step(0x1p-12);  // in bf16 it would be lost
  EXPECT_EQ(w.grad().data<float>(), memory);
  EXPECT_LE(error(w.grad() - first_w, first_w * 0x1p-12), 1e-2);
  EXPECT_LE(error(b.grad() - first_b, first_b * 0x1p-12), 1e-2);
}

TEST(Autocast, NormsReadF32AndWriteBf16) {
  const Tensor x = leaf({3, 7, 193}, 1), w = leaf({193}, 2), b = leaf({193}, 3);
  const Tensor dy = numbers({3, 7, 193}, 4).to(bf16);
  const auto run = [&](const Tensor& y, const Tensor& upstream) {
    return grad({y}, {x, w}, {upstream});
  };
  const Tensor plain[] = {layer_norm(x, w, b), rms_norm(x, w)};
  const Autocast guard;
  const Tensor mixed[] = {layer_norm(x, w, b), rms_norm(x, w)};
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(mixed[i].dtype(), bf16);
    EXPECT_LE(error(mixed[i], plain[i]), kHalfUlp);
    const Grads got = run(mixed[i], dy), expected = run(plain[i], dy.to(f32));
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(got[k].dtype(), f32);
      EXPECT_LE(error(got[k], expected[k]), 1e-6);
    }
  }
}

TEST(Autocast, GroupNormStaysAsItIs) {
  const Tensor x = leaf({3, 6, 32}, 1), w = leaf({6}, 2), plain = group_norm(x, 2, w);
  const Autocast guard;
  EXPECT_TRUE(equal(group_norm(x, 2, w), plain));
}

// A GPU keeps logits in bf16, so each is off by half an ulp.
TEST(Autocast, HeadHasF32LogitsLossAndWeightGradient) {
  const bool f32_logits = test_device().is_cpu();
  const Tensor x = leaf({5, 40, 48}, 1), w = leaf({301, 48}, 2);
  Generator generator(3);
  const Tensor targets = randint(0, 301, {5, 40}, i64, generator);
  const Tensor x64 = rounded(x), w64 = rounded(w);
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    const Tensor exact = linear_cross_entropy(x64, w64, targets, -100, reduction);
    const Grads expected = grad({exact}, {x64, w64}, {ones_like(exact)});
    const Autocast guard;
    const Tensor loss = linear_cross_entropy(x, w, targets, -100, reduction);
    EXPECT_EQ(loss.dtype(), f32);
    EXPECT_LE(error(loss, exact), f32_logits ? 1e-6 : kHalfUlp);
    const Grads got = grad({loss}, {x, w}, {ones_like(loss)});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(got[i].dtype(), f32);
      EXPECT_LE(error(got[i], expected[i]), f32_logits ? kHalfUlp : 4 * kHalfUlp);
    }
  }
}

TEST(Autocast, HeadGivesEachItsGradientInItsDtype) {
  Generator generator(3);
  const Tensor targets = randint(0, 7, {40}, i64, generator);
  for (const DType x_dtype : {f32, bf16}) {
    for (const DType w_dtype : {f32, bf16}) {
      const Tensor x = numbers({40, 16}, 1).to(x_dtype).requires_grad_(),
                   w = numbers({7, 16}, 2).to(w_dtype).requires_grad_();
      const Tensor x64 = rounded(x), w64 = rounded(w);
      for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        const Tensor exact = linear_cross_entropy(x64, w64, targets, -100, reduction);
        const Grads expected = grad({sum(exact)}, {x64, w64});
        for (const bool again : {false, true}) {  // or in basic ops, to be differentiated
          const Autocast guard;
          const Tensor loss = linear_cross_entropy(x, w, targets, -100, reduction);
          const Grads got = grad({sum(loss)}, {x, w}, {}, false, again);
          EXPECT_EQ(got[0].dtype(), x_dtype) << again;
          EXPECT_EQ(got[1].dtype(), w_dtype) << again;
          for (size_t i = 0; i < 2; ++i) EXPECT_LE(error(got[i], expected[i]), 4 * kHalfUlp);
        }
      }
    }
  }
}

// A thousand rows that each add 2^-12 of the first one's share: a sum in bf16 would not see them.
TEST(Autocast, HeadSumsItsWeightGradientInF32) {
  const Tensor x = full({1000, 8}, 1).requires_grad_(), w = zeros({2, 8}).requires_grad_();
  const Autocast guard;
  linear_cross_entropy(x, w, zeros({1000}, i64)).backward();
  for (const double g : w.grad().select(0, 1).tolist()) EXPECT_NEAR(g, 0.5, 1e-3);
}

TEST(Autocast, AResidualIsReadAsItIs) {
  const Tensor x = leaf({3, 5, 7}, 1), y = numbers({3, 5, 7}, 2).to(bf16).requires_grad_();
  const Tensor row = numbers({7}, 3).to(bf16).requires_grad_();
  const Tensor exact = x.to(f64) + y.to(f64);
  for (const Tensor& sum : {x + y, y + x}) {
    EXPECT_EQ(sum.dtype(), f32);
    EXPECT_EQ(sum.tolist(), exact.to(f32).tolist());
    const Grads d = grad({sum}, {x, y}, {numbers({3, 5, 7}, 4)});
    EXPECT_EQ(d[0].dtype(), f32);
    EXPECT_EQ(d[1].dtype(), bf16);
    EXPECT_EQ(d[1].tolist(), d[0].to(bf16).tolist());
  }
  const Grads d = grad({x + row}, {x, row}, {ones({3, 5, 7})});
  EXPECT_EQ(d[1].dtype(), bf16);
  EXPECT_EQ(d[1].tolist(), std::vector<double>(7, 15));
  EXPECT_EQ((y + tensor(1.5)).dtype(), bf16);  // a scalar yields, as everywhere
}

TEST(Autocast, SwitchesAndRefusals) {
  const Tensor x = numbers({2, 3}, 1), w = numbers({4, 3}, 2);
  const Autocast guard;
  EXPECT_EQ(linear(x, w).dtype(), bf16);
  EXPECT_EQ(linear(x.to(f64), w.to(f64)).dtype(), f64);
  EXPECT_EQ(matmul(x, w.T()).dtype(), f32);
  {
    const Autocast off(f32);
    EXPECT_EQ(linear(x, w).dtype(), f32);
    EXPECT_EQ(error_of([&] { linear(x.to(bf16), w); }),
              "linear: expected one floating dtype, got x bfloat16 and weight float32");
  }
  EXPECT_EQ(error_of([&] { linear(x.to(f64), w); }),
            "linear: expected one floating dtype, got x float64 and weight float32");
  EXPECT_EQ(error_of([&] { linear(x.to(i64), w); }),
            "linear: expected one floating dtype, got x int64 and weight float32");
  EXPECT_EQ(error_of([] { const Autocast refused(f64); }),
            "autocast: expected bfloat16 (or float32: none), got float64");
}

// ---- the rounded copy of a weight

TEST(CachedCast, IsMadeAgainAfterAWriteAndOnlyThen) {
  Tensor w = numbers({4, 6}, 1);
  const Tensor first(cached_cast(w, bf16));
  EXPECT_EQ(first.tolist(), w.to(bf16).tolist());
  const uint64_t made = first.version();
  EXPECT_EQ(cached_cast(w, bf16).storage(), first.storage());
  const Tensor view(cached_cast(w.narrow(0, 1, 2).T(), bf16));
  EXPECT_EQ(view.storage(), first.storage());
  EXPECT_EQ(view.tolist(), w.narrow(0, 1, 2).T().to(bf16).tolist());
  EXPECT_EQ(first.version(), made);
  w.narrow(0, 3, 1).mul_(2);  // a write through any handle
  EXPECT_EQ(Tensor(cached_cast(w, bf16)).tolist(), w.to(bf16).tolist());
  EXPECT_EQ(cached_cast(w, bf16).storage(), first.storage());
  EXPECT_EQ(first.version(), made + 1);
  EXPECT_EQ(cached_cast(w, f32).storage(), w.storage());
  EXPECT_EQ(cached_cast(w, f64).dtype(), f64);
  Tensor other = numbers({2, 2}, 2);
  cached_cast(other, bf16);
  w.storage()->swap(*numbers({4, 6}, 3).storage());  // as to(device) does
  EXPECT_EQ(Tensor(cached_cast(w, bf16)).tolist(), numbers({4, 6}, 3).to(bf16).tolist());
}

TEST(CachedCast, APartOfAWeightIsConvertedAlone) {
  const Tensor w = leaf({4096, 256}, 1), x = leaf({3, 256}, 2);
  const Tensor part = w.narrow(0, 1000, 8), alone = part.detach().clone().requires_grad_();
  const auto run = [&](const Tensor& weight, const Tensor& inputs) {
    const Autocast guard;
    const Tensor y = linear(inputs, weight);
    const Grads d = grad({y}, {inputs, weight}, {numbers({3, 8}, 3).to(bf16)});
    return std::vector<Tensor>{y.detach(), d[0], d[1]};
  };
  const std::vector<Tensor> expected = run(alone, x);
  const auto in_use = [&] { return memory_stats(w.device()).bytes_in_use; };
  const int64_t before = in_use();
  reset_peak_memory(w.device());
  const std::vector<Tensor> got = run(part, x);
  EXPECT_LT(memory_stats(w.device()).peak_bytes_in_use - before, w.numel() / 4);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
  const int64_t used = in_use();
  const Array rounded = cached_cast(part, bf16);
  EXPECT_EQ(rounded.storage()->bytes, 2 * part.numel());
  EXPECT_LT(in_use() - used, 4 * part.numel());
  EXPECT_EQ(cast_address(w), nullptr);

  const Grads of_whole = grad({sum(part * 2)}, {w});  // a gradient of the whole weight
  EXPECT_EQ(sum(of_whole[0]).item(), 2.0 * static_cast<double>(part.numel()));
}

// In any order of its elements.
TEST(CachedCast, AllViewsOfTheWholeWeightShareOneCopy) {
  const Tensor w = numbers({6, 4}, 1), views[] = {w.T(), w.view({24}), w.view({2, 3, 4}), w};
  for (const Tensor& view : views) {
    const Array rounded = cached_cast(view, bf16);
    EXPECT_EQ(rounded.storage()->data, cast_address(w));
    EXPECT_EQ(Tensor(rounded).tolist(), view.to(bf16).tolist());
  }
  const Tensor part = w.narrow(1, 1, 2);
  EXPECT_EQ(cached_cast(part, bf16).storage()->data, cast_address(w)) << "which is there already";
}

// ---- a whole model

TrainConfig small_config(const std::filesystem::path& out_dir) {
  TrainConfig config;
  config.device = test_device_name();
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 32;
  config.block_size = 32;
  config.batch_size = 3;
  config.gradient_accumulation_steps = 2;
  config.dropout = 0.1;
  config.bias = true;
  config.max_iters = 60;
  config.warmup_iters = 5;
  config.eval_iters = 2;
  config.dtype = "bfloat16";
  config.out_dir = out_dir.string();
  return config;
}

TEST(CachedCast, KeepsNothingOfMemoryThatOthersMayWrite) {
  std::vector<float> memory{1, 2};
  const FieldGuard host(&Context::default_device, cpu_device);
  const Tensor w = from_blob(memory.data(), {1, 2}, f32), x = ones({1, 2});
  const Autocast autocast;
  EXPECT_EQ(linear(x, w).item(), 3);
  memory[0] = 5;
  EXPECT_EQ(linear(x, w).item(), 7);
}

TEST(CachedCast, AWriteThroughAKeptPointerIsSaid) {
  const FieldGuard host(&Context::default_device, cpu_device);  // which can write there
  Tensor w = ones({1, 2});
  const Tensor x = ones({1, 2}), v = ones({1, 2}).requires_grad_();
  float* kept = w.mutable_data<float>();
  const Autocast autocast;
  EXPECT_EQ(linear(x, w).item(), 2);
  const Tensor y = sum(w * v);
  kept[0] = 4;
  w.bump_version();
  EXPECT_EQ(linear(x, w).item(), 5);
  EXPECT_THROW(y.backward(), Error);
}

TEST(MixedTraining, RoundsEveryWeightAsItIsWritten) {
  const TempFolder folder;
  Trainer trainer(small_config(folder / "run"));
  GPT& model = dynamic_cast<GPT&>(trainer.model());
  std::vector<Tensor> weights{model.lm_head.weight};
  for (const auto& block : model.h) {
    for (Linear* layer :
         {&block->attn->c_attn, &block->attn->c_proj, &block->mlp->c_fc, &block->mlp->c_proj})
      weights.push_back(layer->weight);
  }
  const auto made = [&] {
    std::vector<uint64_t> versions;
    for (const Tensor& weight : weights)
      versions.push_back(current_cast(weight).storage()->version);
    return versions;
  };
  const auto expect_current = [&] {
    for (const Tensor& weight : weights) {
      ASSERT_TRUE(current_cast(weight).defined());
      EXPECT_TRUE(same_bits(Tensor(current_cast(weight)), weight.detach().to(bf16)));
    }
  };
  for (int i = 0; i < 3; ++i) {
    trainer.step();  // of two micro-batches; the optimizer rounds what it writes
    expect_current();
    const std::vector<uint64_t> after = made();
    trainer.evaluate();
    EXPECT_EQ(made(), after);
  }
  model.load_state_dict(model.state_dict());  // a write like any other
  for (const Tensor& weight : weights) EXPECT_FALSE(current_cast(weight).defined());
  trainer.step();
  expect_current();
  EXPECT_EQ(cast_address(model.wpe.weight), nullptr);
  EXPECT_EQ(model.wte.weight.storage(), model.lm_head.weight.storage());
}

// Sees the dtypes of what ops return, forward and backward.
struct Dtypes : Observer {
  std::map<std::string, std::map<DType, int>> seen;
  void op(const char* name, const std::vector<Tensor>&, const std::vector<Tensor>& outputs,
          bool) override {
    for (const Tensor& y : outputs) ++seen[name][y.dtype()];
  }
};

TEST(MixedTraining, NothingIsConvertedThatNeedNotBe) {
  GPTConfig config{.block_size = 8, .vocab_size = 11, .n_layer = 3, .n_head = 2, .n_embd = 16};
  config.bias = true;
  const GPT model(config);
  Generator generator(1);
  const Tensor ids = randint(0, 11, {2, 8}, i64, generator);
  Dtypes forward, backward;
  Tensor loss;
  {
    const Autocast guard;
    const Observe observe(forward);
    loss = model.loss(ids, ids);
  }
  {
    const Observe observe(backward);
    loss.backward();
  }
  using Counts = std::map<DType, int>;
  EXPECT_EQ(forward.seen.count("to"), 0u);
  EXPECT_EQ(forward.seen["linear"], (Counts{{bf16, 9}}));
  EXPECT_EQ(forward.seen["layer_norm"], (Counts{{bf16, 1}}));
  EXPECT_EQ(forward.seen["add_layer_norm"], (Counts{{f32, 6}, {bf16, 6}}));
  EXPECT_EQ(forward.seen["gelu_linear"], (Counts{{bf16, 3}}));
  EXPECT_EQ(forward.seen["causal_attention"], (Counts{{bf16, 3}}));
  EXPECT_EQ(forward.seen["add"], (Counts{{f32, 1}}));
  EXPECT_EQ(forward.seen["embedding"], (Counts{{f32, 1}}));
  EXPECT_EQ(loss.dtype(), f32);
  EXPECT_EQ(backward.seen.count("to"), 0u);
  EXPECT_EQ(backward.seen.count("add"), 0u);
  for (const auto& [name, parameter] : model.named_parameters()) {
    EXPECT_EQ(parameter.dtype(), f32) << name;
    EXPECT_EQ(parameter.grad().dtype(), f32) << name;
  }
}

TEST(MixedTraining, DefinitionsGiveTheSameWithinRounding) {
  const TempFolder folder;
  TrainConfig config = small_config(folder / "run");
  std::vector<double> losses[2];
  for (int composed = 0; composed < 2; ++composed) {
    config.composed = composed;
    Trainer trainer(config);
    for (int i = 0; i < 5; ++i) {
      trainer.step();
      losses[composed].push_back(trainer.progress().loss);
    }
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 2e-3 * losses[0][i]);
}

TEST(MixedTraining, FollowsTheLossesOfF32) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "there, test_cuda_training compares the losses";
  const TempFolder folder;
  std::vector<double> losses[2];
  for (int mixed = 0; mixed < 2; ++mixed) {
    TrainConfig config = small_config(folder / "run");
    config.dtype = mixed ? "bfloat16" : "float32";
    Trainer trainer(config);
    while (trainer.steps_done() < 60) {
      for (int i = 0; i < 10; ++i) trainer.step();
      losses[mixed].push_back(trainer.progress().loss);
    }
  }
  for (size_t i = 0; i < losses[0].size(); ++i)
    EXPECT_NEAR(losses[1][i], losses[0][i], 0.01 * losses[0][i]) << "ten steps after " << 10 * i;
  EXPECT_LT(losses[1].back(), 0.8 * losses[1].front());
  EXPECT_NE(losses[1], losses[0]) << "the dtype changed nothing";
}

TEST(MixedTraining, ResumesBitForBitFromF32Weights) {
  const TempFolder folder;
  const auto run = [&](const std::filesystem::path& out_dir, const std::vector<int64_t>& stops) {
    TrainConfig config = small_config(out_dir);
    for (const int64_t stop : stops) {
      Trainer trainer(config);
      while (trainer.steps_done() < stop) trainer.step();
      trainer.save("ckpt");
      config.init_from = "resume";
    }
  };
  const int64_t last = by_device(20, 10);
  run(folder / "straight", {last});
  run(folder / "interrupted", {3, 4, last});
  const auto bytes = [&](const char* out_dir, const char* file) {
    std::ifstream in(folder / out_dir / "ckpt" / file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* file :
       {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(bytes("straight", file), bytes("interrupted", file)) << file;
    EXPECT_FALSE(bytes("straight", file).empty()) << file;
  }
  for (const auto& [name, tensor] : load(folder / "straight/ckpt/model.safetensors"))
    EXPECT_EQ(tensor.dtype(), f32) << name;
  const LoadedModel loaded = load_model((folder / "straight").string());
  EXPECT_EQ(loaded.config.dtype, "bfloat16");
  std::string text;
  GenerateOptions options;
  options.max_new_tokens = 40;
  write_sample(*loaded.model, *loaded.tokenizer, loaded.start, options,
               [&](const std::string& piece) { text += piece; });
  EXPECT_GE(text.size(), 41u);
  const Autocast guard;  // and in bf16, whose keys and values a cache holds
  write_sample(*loaded.model, *loaded.tokenizer, loaded.start, options, [](const std::string&) {});
}

TEST(MixedTraining, PartsOfABatchRunUnderAutocastToo) {
  const ContextGuard guard;
  context().observers.clear();  // one that looks on keeps the trainer to one part
  const TempFolder folder;
  TrainConfig config = small_config(folder / "run");
  std::vector<double> losses[2];
  for (const int64_t parts : {1, 2}) {
    config.batch_parts = parts;
    Trainer trainer(config);
    for (int i = 0; i < 5; ++i) {
      trainer.step();
      losses[parts - 1].push_back(trainer.progress().loss);
    }
    EXPECT_NE(cast_address(dynamic_cast<const GPT&>(trainer.model()).h[1]->mlp->c_proj.weight),
              nullptr)
        << parts;
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 2e-3 * losses[0][i]);
}

// Two threads read one stale weight at once: one rounds it, both see it whole.
TEST(MixedTraining, ThreadsShareOneModel) {
  const GPT model({.block_size = 8, .vocab_size = 11, .n_layer = 1, .n_head = 2, .n_embd = 16});
  Generator generator(1);
  const Tensor ids = randint(0, 11, {2, 8}, i64, generator);
  const auto gradients = [&](const Tensor& rows, GradStore& store) {
    const Autocast guard;
    backward(model.loss(rows, rows), store);
  };
  std::vector<double> sums[2];
  for (std::vector<double>& sum : sums) {
    const bool serial = &sum == sums;
    {
      const NoGrad no_grad;
      for (Tensor parameter : model.parameters()) parameter.mul_(1);  // every copy is stale
    }
    GradStore stores[2];
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < 2; ++i) {
      const auto work = [&, i] { gradients(ids.narrow(0, i, 1), stores[i]); };
      threads.emplace_back(work);
      if (serial) threads.back().join();
    }
    for (std::thread& thread : threads) {
      if (thread.joinable()) thread.join();
    }
    for (const Tensor& parameter : model.parameters()) {
      for (GradStore& store : stores) {
        const auto values = store.get(parameter).tolist();
        sum.insert(sum.end(), values.begin(), values.end());
      }
    }
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(MixedTraining, TheLossesOfPyTorchsAutocast) {
  GPTConfig config{.block_size = 16, .vocab_size = 29, .n_layer = 2, .n_head = 2, .n_embd = 32};
  GPT model(config);
  std::map<std::string, Tensor> fixture;
  NamedTensors initial;
  for (const auto& [name, tensor] : load_golden("gpt.safetensors")) {
    fixture[name] = tensor;
    if (name.rfind("initial.", 0) == 0) initial.emplace_back(name.substr(8), tensor);
  }
  model.load_state_dict(initial);
  AdamW optimizer(decay_matrices(model.named_parameters(), 0.1),
                  {.lr = 1e-3, .beta2 = 0.95, .grad_clip = 1});
  std::ifstream expected(golden("autocast.txt"));
  int64_t step = 0;
  for (double loss = 0, norm = 0; expected >> loss >> norm; ++step) {
    const Autocast guard;
    const Tensor got =
        model.loss(fixture["ids"].select(0, step), fixture["targets"].select(0, step));
    optimizer.zero_grad();
    got.backward();
    optimizer.step(got);
    EXPECT_NEAR(got.item(), loss, 1e-3 * loss) << "step " << step;
    EXPECT_NEAR(optimizer.status().grad_norm.item(), norm, 1e-2 * norm) << "step " << step;
  }
  EXPECT_EQ(step, 20);
}

}  // namespace
}  // namespace ink
