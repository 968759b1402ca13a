// Memory: what the caching allocator keeps, reuses, gives back and refuses; and what is computed
// again instead of kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/memory/free_ranges.h"
#include "tests/support/each_unit.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "train/trainer.h"

namespace ink {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(FreeRanges, MergeWithNeighboursOnBothSides) {
  std::vector<char> memory(100);
  char* const start = memory.data();
  FreeRanges ranges;
  ranges.put(start, 10);
  ranges.put(start + 20, 10);
  EXPECT_EQ(ranges.all().size(), 2u);
  EXPECT_EQ(ranges.take(20), nullptr);
  ranges.put(start + 10, 10);
  ASSERT_EQ(ranges.all().size(), 1u);
  EXPECT_EQ(ranges.ending_at(start + 30), 30);
  EXPECT_EQ(ranges.ending_at(start + 29), 0);
  EXPECT_EQ(ranges.ending_at(start), 0);
  EXPECT_EQ(ranges.take(30), start);
  EXPECT_TRUE(ranges.all().empty());
}

TEST(FreeRanges, ACutLeavesWhatIsOnBothSides) {
  std::vector<char> memory(100);
  char* const start = memory.data();
  using Ranges = std::map<char*, int64_t>;
  FreeRanges ranges;
  ranges.put(start, 50);
  ranges.cut(start + 20, 10);
  EXPECT_EQ(ranges.all(), (Ranges{{start, 20}, {start + 30, 20}}));
  ranges.cut(start + 30, 5);
  ranges.cut(start + 15, 5);
  EXPECT_EQ(ranges.all(), (Ranges{{start, 15}, {start + 35, 15}}));
  ranges.cut(start, 15);
  EXPECT_EQ(ranges.all(), (Ranges{{start + 35, 15}}));
  EXPECT_FALSE(ranges.has(20));
  EXPECT_TRUE(ranges.has(15));
}

TEST(FreeRanges, MergeWithinBoundsOnly) {
  std::vector<char> memory(100);
  char* const start = memory.data();
  using Ranges = std::map<char*, int64_t>;
  FreeRanges ranges;
  ranges.put(start, 20);
  ranges.put(start + 40, 20);
  ranges.put(start + 20, 20, start + 20, start + 40);
  EXPECT_EQ(ranges.all(), (Ranges{{start, 20}, {start + 20, 20}, {start + 40, 20}}));
  EXPECT_EQ(ranges.take(20), start);
  ranges.put(start + 60, 20, start + 40, start + 80);
  EXPECT_EQ(ranges.all(), (Ranges{{start + 20, 20}, {start + 40, 40}}));
}

TEST(FreeRanges, BestFitThenLowestAddress) {
  std::vector<char> memory(100);
  char* const start = memory.data();
  FreeRanges ranges;
  ranges.put(start + 80, 8);
  ranges.put(start + 60, 8);
  ranges.put(start, 20);
  ranges.put(start + 40, 5);
  EXPECT_EQ(ranges.take(6), start + 60);
  EXPECT_EQ(ranges.take(8), start + 80);
  EXPECT_EQ(ranges.take(8), start) << "cut";
  EXPECT_EQ(ranges.take(12), start + 8) << "its rest";
  EXPECT_EQ(ranges.take(2), start + 66) << "what was left of the first";
  EXPECT_EQ(ranges.take(4), start + 40);
}

Tensor block_of(int64_t bytes) { return empty({bytes}, boolean); }

TEST(FreeRanges, TheLastServesWhatNoOtherCan) {
  std::vector<char> memory(100);
  char *const start = memory.data(), *const end = start + 100;
  FreeRanges ranges;
  ranges.put(start, 30);
  ranges.put(start + 80, 20);
  EXPECT_TRUE(ranges.has(20));
  EXPECT_FALSE(ranges.has(10));
  EXPECT_EQ(ranges.take(10, end), start) << "though the last one is smaller";
  EXPECT_EQ(ranges.take(25, end), nullptr);
  EXPECT_EQ(ranges.take(20, end), start + 10);
  EXPECT_EQ(ranges.take(20, end), start + 80);
}

TEST(Memory, FreedBlocksServeLargerAndSmallerOnes) {
  empty_cache();
  const void* start = nullptr;
  {
    const Tensor a = block_of(3 * kMiB), b = block_of(2 * kMiB), c = block_of(5 * kMiB);
    start = a.data<bool>();
  }
  const MemoryStats before = memory_stats();
  const Tensor whole = block_of(10 * kMiB);
  EXPECT_EQ(whole.data<bool>(), start);
  EXPECT_EQ(memory_stats().raw_allocations, before.raw_allocations);
  EXPECT_EQ(memory_stats().bytes_held, before.bytes_held);
  EXPECT_EQ(memory_stats().bytes_in_use, before.bytes_in_use + 10 * kMiB);
}

TEST(Memory, BlocksOfAFewPagesServeOneAnother) {
  empty_cache();
  const void* start = nullptr;
  {
    const Tensor a = block_of(kMiB / 16), b = block_of(kMiB / 8);
    start = a.data<bool>();
  }
  EXPECT_EQ(block_of(3 * kMiB / 16).data<bool>(), start);
}

// What the allocator holds after the work, over the most that was in use.
double held_over_peak(const std::function<void()>& work) {
  empty_cache();
  reset_peak_memory();
  work();
  const MemoryStats after = memory_stats();
  return static_cast<double>(after.bytes_held) / static_cast<double>(after.peak_bytes_in_use);
}

TEST(Memory, OneSizeAfterAnotherHoldsLittleMoreThanThePeak) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = 200; bytes < 2 * kMiB; bytes += bytes / 7) sizes.push_back(bytes);
  for (const char* order : {"growing", "shrinking"}) {
    EXPECT_LT(held_over_peak([&] {
                for (const int64_t bytes : sizes) {
                  std::vector<Tensor> alive;
                  for (int64_t i = 0; i < 16 * kMiB / bytes; ++i) alive.push_back(block_of(bytes));
                }
              }),
              1.25)
        << order;
    std::reverse(sizes.begin(), sizes.end());
  }
}

TEST(Memory, ATensorThatGrowsHoldsTwiceThePeakAtMost) {
  EXPECT_LT(held_over_peak([] {
              Tensor x = block_of(64);
              while (x.numel() < 32 * kMiB) x = block_of(x.numel() * 17 / 16);
            }),
            2);
}

// Sizes of all magnitudes. Lifetimes are random, and so is how much is alive.
TEST(Memory, RandomSizesAndLifetimesHoldTwiceThePeakAtMost) {
  std::mt19937 random(1);
  for (const double largest : {4096.0, 65536.0, 2.0 * kMiB}) {
    EXPECT_LT(held_over_peak([&] {
                std::uniform_real_distribution<double> magnitude(std::log(64), std::log(largest));
                std::vector<Tensor> alive(2000);
                for (int i = 0; i < 40000; ++i) {
                  Tensor& x = alive[random() % alive.size()];
                  x = {};
                  if (random() % 10000 > static_cast<unsigned>(i) % 10000)
                    x = block_of(static_cast<int64_t>(std::exp(magnitude(random))));
                }
              }),
              2)
        << largest;
  }
}

TEST(MemoryDeathTest, TheAddressSanitizerSeesTheEndOfABlockAmongOthers) {
#ifndef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "needs the address sanitizer";
#endif
  for (const int64_t size : {16, 1000, 5000}) {
    const Tensor blocks[] = {ones({size}), ones({size}), ones({size})};
    for (const Tensor& x : blocks) {
      const float* data = x.data<float>();
      EXPECT_DEATH(static_cast<void>(std::vector<float>(data, data + size + 1)),
                   "use-after-poison");
    }
  }
}

// The head's weight has its gradient since forward.
TEST(Memory, AGradientThatAnOpKeptBecomesItsLeafsOwn) {
  const int64_t V = 20000, C = 64;
  const Tensor x = randn({8, C}), targets = randint(0, V, {8}),
               weight = randn({V, C}).requires_grad_();
  const Tensor loss = linear_cross_entropy(x, weight, targets);
  const int64_t before = memory_stats().bytes_in_use;
  reset_peak_memory();
  loss.backward();
  EXPECT_LT(memory_stats().peak_bytes_in_use - before, V * C);  // a quarter of a copy
  ASSERT_EQ(weight.grad().shape(), weight.shape());
}

// In matrices of the inputs' size, beside the output. Second derivatives cost two of them:
// cross_entropy's logits and linear_cross_entropy's input.
TEST(Memory, OpsKeepForBackwardNoMoreThanTheyNeed) {
  constexpr int64_t kSide = 512, kMatrix = kSide * kSide * 4;
  const auto matrix = [] { return rand({kSide, kSide}).requires_grad_(); };
  const Tensor w = matrix(), v = matrix(), row = rand({kSide}).requires_grad_();
  const Tensor ids = randint(kSide, {kSide});
  const std::vector<std::tuple<const char*, int, std::function<Tensor(const Tensor&)>>> cases = {
      {"linear", 1, [&](auto& x) { return linear(x, w, row); }},
      {"gelu", 1, [&](auto& x) { return gelu(x); }},
      {"gelu_linear", 2, [&](auto& x) { return gelu_linear(x, w, row); }},
      {"mlp", 3, [&](auto& x) { return mlp(x, w, row, v, row); }},
      {"layer_norm", 1, [&](auto& x) { return layer_norm(x, row, row); }},
      {"rms_norm", 1, [&](auto& x) { return rms_norm(x, row); }},
      {"softmax", 0, [&](auto& x) { return softmax(x); }},
      {"log_softmax", 0, [&](auto& x) { return log_softmax(x); }},
      {"dropout", 0, [&](auto& x) { return dropout(x, 0.5); }},
      {"attention", 1, [&](auto& x) { return scaled_dot_product_attention(x, x, x); }},
      {"add", 0, [&](auto& x) { return x + w; }},
      {"mul", 1, [&](auto& x) { return x * w; }},
      {"a write into a view", 0, [&](auto& x) { return Tensor(x).index({0}).copy_(row), x; }},
      {"cross_entropy", 2, [&](auto& x) { return cross_entropy(x, ids); }},
      {"linear_cross_entropy", 3, [&](auto& x) { return linear_cross_entropy(x, w, ids); }}};
  for (const auto& [name, expected, op] : cases) {
    const int64_t before = memory_stats().bytes_in_use;
    const Tensor y = op(w + 1);
    const int64_t kept = memory_stats().bytes_in_use - before - y.storage()->bytes;
    EXPECT_NEAR(static_cast<double>(kept) / kMatrix, expected, 0.05) << name;
  }
}

TEST(Memory, GrowsByWhatTheLastRangeLacks) {
  empty_cache();
  const int64_t before = memory_stats().bytes_held;
  block_of(8 * kMiB);
  const Tensor wider = block_of(12 * kMiB);
  EXPECT_EQ(memory_stats().bytes_held - before, 12 * kMiB);
}

TEST(Memory, EveryBlockIsAlignedAndAsLargeAsItIsSaidToBe) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{65}, kMiB - 1, kMiB, kMiB + 1}) {
    const int64_t before = memory_stats().bytes_in_use;
    const Tensor x = block_of(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data<bool>()) % 64, 0u) << bytes;
    EXPECT_EQ(memory_stats().bytes_in_use - before, block_bytes(bytes)) << bytes;
    EXPECT_GE(block_bytes(bytes), bytes);
    EXPECT_LE(static_cast<double>(block_bytes(bytes)), 1.125 * static_cast<double>(bytes) + 128);
  }
}

TEST(Memory, EmptyCacheGivesBackAllThatIsFree) {
  const Tensor first = full({kMiB}, 1);
  Tensor second = full({kMiB}, 2);
  const Tensor third = full({kMiB}, 3), small = full({10}, 4);
  second = {};
  EXPECT_GE(memory_stats().bytes_held, memory_stats().bytes_in_use + 4 * kMiB);
  empty_cache();
  EXPECT_LT(memory_stats().bytes_held, memory_stats().bytes_in_use + kMiB / 16);  // parts of pages
  second = full({kMiB}, 5);
  EXPECT_EQ(sum(first).item() + sum(second).item() + sum(third).item(), 9.0 * kMiB);
  EXPECT_EQ(sum(small).item(), 40);
}

TEST(Memory, RefusesWhatTheMachineDoesNotHave) {
  block_of(4 * kMiB);
  const MemoryStats before = memory_stats();
  const std::string error = error_of([] { block_of(int64_t{1} << 60); });
  EXPECT_EQ(error.rfind("memory: cannot allocate 1152921504606846976 bytes on cpu: ", 0), 0u)
      << error;
  EXPECT_LE(memory_stats().bytes_held, before.bytes_held - 4 * kMiB) << "flushed before refusing";
  EXPECT_EQ(memory_stats().bytes_in_use, before.bytes_in_use);
}

// Large blocks of many sizes, freed in another order than they came.
void expect_training_holds_little(const char* dtype) {
  const TempFolder folder;
  TrainConfig config;
  config.n_embd = 256;
  config.batch_size = 8;
  config.dtype = dtype;
  config.batch_parts = 1;  // of several, it depends on who is when
  config.out_dir = (folder / "run").string();
  empty_cache();
  reset_peak_memory();
  Trainer trainer(config);
  const auto step = [&] {
    trainer.step();
    trainer.progress();  // which lets go of the losses
  };
  step();
  const MemoryStats first = memory_stats();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(memory_stats().raw_allocations, first.raw_allocations) << dtype;
  EXPECT_EQ(memory_stats().peak_bytes_in_use, first.peak_bytes_in_use) << dtype;
  EXPECT_LT(static_cast<double>(first.bytes_held),
            1.15 * static_cast<double>(first.peak_bytes_in_use))
      << dtype;
}
TEST(Memory, TrainingHoldsLittleMoreThanItUses) {
  for (const char* dtype : {"float32", "bfloat16"}) expect_training_holds_little(dtype);
}
TEST(Memory, TrainingHoldsLittleWithEachUnit) {
  expect_passes_with_each_unit("Memory.TrainingHoldsLittleMoreThanItUses");
}

// Small blocks that were freed lie between large ones.
TEST(Memory, ALargeBlockIsCutAfterSmallOnesHaveMerged) {
  empty_cache();
  const void* start = nullptr;
  {
    const Tensor a = block_of(kMiB), small = block_of(1000), b = block_of(kMiB), c = block_of(64);
    start = a.data<bool>();
  }
  const Tensor half = block_of(3 * kMiB / 2);
  EXPECT_EQ(half.data<bool>(), start);
}

// ---- Recompute

// Losses of three steps, and the most memory that tensors took.
std::pair<std::vector<double>, int64_t> train(TrainConfig config, bool recompute) {
  const TempFolder folder;
  config.n_layer = 6;
  config.n_embd = 64;
  config.block_size = 64;
  config.batch_size = 8;
  config.batch_parts = 1;
  config.dropout = 0.1;
  config.recompute = recompute;
  config.out_dir = (folder / "run").string();
  const int64_t before = memory_stats().bytes_in_use;
  Trainer trainer(config);
  std::vector<double> losses;
  reset_peak_memory();
  for (int i = 0; i < 3; ++i) {
    trainer.step();
    losses.push_back(trainer.progress().loss);
  }
  return {losses, memory_stats().peak_bytes_in_use - before};
}

TEST(Recompute, TrainsToTheSameBitsInLessMemory) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    TrainConfig config;
    config.dtype = dtype;
    const auto kept = train(config, false), remade = train(config, true);
    EXPECT_EQ(kept.first, remade.first) << dtype;
    EXPECT_LT(static_cast<double>(remade.second), 0.9 * static_cast<double>(kept.second)) << dtype;
  }
}

TEST(Recompute, GradientsAreTheSameBits) {
  const Tensor x = randn({3, 7, 33}).requires_grad_(), w = randn({33}).requires_grad_(),
               b = randn({33}).requires_grad_(), out = randn({5, 33}).requires_grad_();
  const auto gradients = [&] {
    const Tensor h = linear(gelu(layer_norm(x, w, b), Gelu::tanh), out);
    const Tensor other = linear(layer_norm(rms_norm(x, w)), out);
    return grad({h * h, other * other}, {x, w, b, out}, {ones_like(h), ones_like(h)});
  };
  const Grads kept = gradients();
  const Recompute guard;
  const Grads remade = gradients();
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i].tolist(), remade[i].tolist()) << i;
}

TEST(Recompute, WhatIsComputedFromMustNotChange) {
  Tensor x = randn({2, 3});
  const Tensor w = randn({3, 3}).requires_grad_();
  const Recompute guard;
  const Tensor h = linear(x, w), y = linear(gelu(h), w);
  {
    const NoGrad no_grad;
    Tensor(h).add_(1);
  }
  const std::string error = error_of([&] { sum(y).backward(); });
  const char* const start =
      "the backward of linear: an input, (2, 3) float32, was saved at version ";
  EXPECT_EQ(error.rfind(start, 0), 0u) << error;
}

TEST(Recompute, AFreedGraphIsNamed) {
  const Tensor x = randn({2, 3}).requires_grad_(), w = randn({3, 3}).requires_grad_();
  const Recompute guard;
  const Tensor h = gelu(x), a = linear(h, w), b = linear(h, w);
  sum(a).backward();
  EXPECT_EQ(error_of([&] { sum(b).backward(); }),
            "backward: the graph through gelu was freed by an earlier walk; detach() what is kept "
            "of an earlier step, pass retain_graph to the first walk, or run the forward again");
}

}  // namespace
}  // namespace ink
