// What a training step on a CUDA device does besides ops: dropout's masks are the CPU's to the bit,
// optimizers take the CPU's steps, and both follow what changes from step to step when a step is
// captured and replayed.
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/random/generator.h"
#include "autograd/replay.h"
#include "tests/cuda/on_cuda.h"
#include "train/optimizer.h"

namespace ink {
namespace {

class CudaTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    manual_seed(5);
    context().observers.clear();  // nothing is replayed while one looks on
  }
  const ContextGuard guard_;
};

// ---- dropout

// The same elements on a device, `shift` elements off the allocator's alignment.
Tensor on_cuda(const Tensor& x, int64_t shift = 0) {
  Tensor room = empty({x.numel() + shift}, {x.dtype(), cuda_device});
  Tensor place = room.narrow(0, shift, x.numel()).view(x.shape());
  place.copy_(x.to(cuda_device));
  return place;
}

void expect_same_mask(const Shape& shape, double p, const RandomPosition& at) {
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor x = randn(shape).to(dtype);
    Tensor expected = empty_like(x);
    kernel::dropout(expected, x, p, at);
    for (const int64_t shift : {0, 1, 4}) {
      const Tensor on_gpu = on_cuda(x, shift);
      Tensor y = empty_like(on_gpu);
      kernel::dropout(y, on_gpu, p, at);
      EXPECT_TRUE(same_bits(y, expected)) << shape << " " << name_of(dtype) << " p " << p
                                          << " from row " << at.first_row << " shift " << shift;
    }
  }
}

TEST_F(CudaTraining, DropoutDropsWhatTheCpuDrops) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3}, Shape{4}, Shape{5}, Shape{0, 3},
                             Shape{7, 5, 3}, Shape{17, 61}, Shape{4, 1024}, Shape{3, 4099}})
    for (const uint64_t row : {0, 1, 2, 7})
      expect_same_mask(shape, 0.3, {.seed = 7, .step = 3, .micro_batch = 1, .first_row = row});
  for (const double p : {1e-7, 0.5, 0.999, 1.0})
    expect_same_mask({2, 1001}, p, {.seed = 1, .step = 2, .call = 9});
}

TEST_F(CudaTraining, DropoutCountersPass32Bits) {
  const uint64_t call = uint64_t{5} << 32 | 3, row = (uint64_t{1} << 34) / 4100;
  expect_same_mask({1, 4100}, 0.5, {.seed = 7, .call = call, .first_row = row});
}

TEST_F(CudaTraining, DroppedNanStaysNan) {
  Tensor x = full({8}, std::nan("")), y = empty_like(on_cuda(x));
  kernel::dropout(y, on_cuda(x), 1, {});
  for (const double value : y.tolist()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(CudaTraining, ReplayedDropoutDrawsForItsStep) {
  const Tensor x = ones({7, 301}), on_gpu = on_cuda(x);
  Tensor y = empty_like(on_gpu), expected = empty_like(x);
  Replay replay(cuda_device, {y});
  for (uint64_t step = 0; step < 6; ++step) {
    context().random = {.seed = 3, .step = step, .micro_batch = 1, .call = 2};
    replay.run([&] { kernel::dropout(y, on_gpu, 0.4, context().random); });
    kernel::dropout(expected, x, 0.4, context().random);
    EXPECT_TRUE(same_bits(y, expected)) << "step " << step;
  }
  EXPECT_TRUE(replay.captured());
}

TEST_F(CudaTraining, ReplayedSamplesAreDrawnForTheirStep) {
  const Tensor p = softmax(randn({9, 301})), on_gpu = on_cuda(p);
  Tensor drawn = on_cuda(zeros({9, 1}, i64)), expected = zeros({9, 1}, i64);
  Replay replay(cuda_device, {drawn});
  for (uint64_t step = 0; step < 6; ++step) {
    context().random = {.seed = 3, .step = step, .micro_batch = 1, .call = 2};
    replay.run([&] { kernel::sample(drawn, on_gpu, context().random); });
    kernel::sample(expected, p, context().random);
    EXPECT_TRUE(same_bits(drawn, expected)) << "step " << step;
  }
  EXPECT_TRUE(replay.captured());
}

// ---- captures

// Work that reads its result back cannot be captured. That shows only after the rounding of the
// weight was captured, and so not done: it must be done again.
TEST_F(CudaTraining, AfterARecordingThatFailedWeightsAreRoundedAgain) {
  const Autocast narrow;
  const NoGrad no_grad;
  const Tensor x = on_cuda(ones({1, 1}));
  Tensor w = on_cuda(ones({1, 1}));
  Replay replay(cuda_device, {w});
  for (int step = 1; step <= 6; ++step) {
    double y = 0;
    replay.run([&] {
      y = linear(x, w).item();
      w += 1;
    });
    EXPECT_EQ(y, step);
  }
  EXPECT_FALSE(replay.captured());
}

// Nor does what was rounded while a step was done op by op count in its capture.
TEST_F(CudaTraining, RecordedStepsRoundWhatTheyRead) {
  const Autocast narrow;
  const NoGrad no_grad;
  const Tensor x = on_cuda(ones({1, 1}));
  Tensor w = on_cuda(ones({1, 1})), y = on_cuda(zeros({1, 1}));
  Replay replay(cuda_device, {y});
  for (int step = 0; step < 6; ++step) {
    if (step >= 4) w.fill_(step);  // when it is captured it is as it was
    replay.run([&] { y.copy_(linear(x, w)); });
    EXPECT_EQ(y.item(), w.item()) << "step " << step;
    EXPECT_EQ(linear(x, w).item(), w.item()) << "step " << step;
  }
  EXPECT_TRUE(replay.captured());
}

// An optimizer rounds the weights that it writes, so that a captured step need not; but it reads
// what was written to them in between.
TEST_F(CudaTraining, RecordedStepsKeepRoundedWeightsCurrent) {
  const OnCuda guard;
  const Autocast narrow;
  const Tensor x = ones({1, 2});
  Tensor w = full({3, 2}, 1.003).requires_grad_(), y = zeros({1, 3}, bf16);
  AdamW optimizer(NamedTensors{{"w", w}}, {.lr = 0.25});
  Replay replay(cuda_device, {w, y});
  for (int step = 0; step < 8; ++step) {
    const NoGrad no_grad;
    if (step == 5 || step == 7) w.fill_(step + 0.003);
    const Tensor before = w.detach().clone();
    replay.run([&] {
      y.copy_(linear(x, w));
      w.set_grad(ones({3, 2}));
      optimizer.step();
    });
    EXPECT_EQ(y.tolist()[0], 2 * before.to(bf16).tolist()[0]) << "step " << step;
    EXPECT_LT(w.tolist()[0], before.tolist()[0]);
    ASSERT_TRUE(current_cast(w).defined());
    EXPECT_TRUE(same_bits(Tensor(current_cast(w)), w.detach().to(bf16))) << "step " << step;
    EXPECT_EQ(linear(x, w).tolist()[0], 2 * w.detach().to(bf16).tolist()[0]);
  }
  EXPECT_TRUE(replay.captured());
}

TEST_F(CudaTraining, WhateverIsThrownEndsTheRecording) {
  Tensor x = on_cuda(zeros({3}));
  Replay replay(cuda_device, {x});
  const NoGrad no_grad;
  const auto work = [&](int step) {
    replay.run([&] {
      x += 1;
      if (step == 2) throw std::runtime_error("of another kind");
    });
  };
  for (int step = 0; step < 5; ++step) {
    if (step == 2) {
      EXPECT_THROW(work(step), std::runtime_error);
    } else {
      work(step);
    }
  }
  EXPECT_EQ(x.tolist(), std::vector<double>(3, 4));
}

TEST_F(CudaTraining, RecordsAreForgottenWhenTensorsChange) {
  const NoGrad no_grad;
  Tensor total = on_cuda(zeros({}));
  Replay replay(cuda_device, {total});
  double expected = 0;
  const auto run = [&](const Tensor& x, int times, bool recorded) {
    for (int i = 0; i < times; ++i) replay.run([&] { total += sum(x); }, {x});
    expected += times * sum(x).item();
    EXPECT_EQ(total.item(), expected) << x.shape();
    EXPECT_EQ(replay.captured(), recorded) << x.shape();
  };
  const Tensor first = on_cuda(ones({5})), longer = on_cuda(ones({7}) * 2),
               elsewhere = on_cuda(ones({7}) * 3);
  run(first, 4, true);
  run(longer, 1, false);
  run(longer, 3, true);
  run(elsewhere, 2, false);
  run(elsewhere, 1, true);
  run(elsewhere.narrow(0, 2, 5), 3, true);

  Tensor moved = on_cuda(zeros({}));
  moved.storage()->swap(*total.storage());  // as a parameter's memory moves
  expected = 0;
  run(elsewhere, 4, true);
}

// While it is captured there is no second set of segments, and afterwards none is left.
TEST_F(CudaTraining, RecordsTakeTheMemoryThatTheirWorkNeeds) {
  constexpr int64_t kBytes = int64_t{96} << 20;
  const NoGrad no_grad;
  Tensor y = on_cuda(zeros({}));
  empty_cache(cuda_device);
  const int64_t before = memory_stats(cuda_device).bytes_held;
  {
    Replay replay(cuda_device, {y});
    for (int i = 0; i < 4; ++i) {
      replay.run([&] {
        y.fill_(i);
        const Tensor large = empty({kBytes / 4}, {f32, cuda_device});
        if (i == 2) {
          EXPECT_LT(memory_stats(cuda_device).bytes_held, before + kBytes * 3 / 2);
        }
      });
    }
    EXPECT_TRUE(replay.captured());
    empty_cache(cuda_device);
    EXPECT_GE(memory_stats(cuda_device).bytes_held, before + kBytes);
  }
  empty_cache(cuda_device);
  EXPECT_EQ(memory_stats(cuda_device).bytes_held, before);
}

// ---- optimizers

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>;

// The same parameters on the CPU and on the device, each with an optimizer of its own.
struct Twins {
  struct Side {
    NamedTensors parameters;
    std::unique_ptr<Optimizer> optimizer;
  };
  Side cpu, gpu;

  Twins(const std::vector<Tensor>& values, const MakeOptimizer& make) {
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string name = "p" + std::to_string(i);
      cpu.parameters.emplace_back(name, values[i].clone().requires_grad_());
      gpu.parameters.emplace_back(name, on_cuda(values[i], i % 3 == 1).requires_grad_());
    }
    cpu.optimizer = make(cpu.parameters);
    gpu.optimizer = make(gpu.parameters);
  }
  /// Every seventh parameter has no gradient at odd steps.
  void set_grads(int64_t step, double scale = 1) {
    for (size_t i = 0; i < cpu.parameters.size(); ++i) {
      Tensor &p = cpu.parameters[i].second, &q = gpu.parameters[i].second;
      const bool none = i % 7 == 3 && step % 2 == 1;
      const Tensor g = (randn(p.shape()) * scale).to(p.dtype());
      p.set_grad(none ? Tensor() : g);
      q.set_grad(none ? Tensor() : on_cuda(g, i % 5 == 2));
    }
  }
  void expect_equal(double tolerance) const {
    const OptimizerStatus &a = gpu.optimizer->status(), &b = cpu.optimizer->status();
    expect_close({a.grad_norm, a.clip, a.skipped, a.loss_sum},
                 {b.grad_norm, b.clip, b.skipped, b.loss_sum}, tolerance, "status");
    EXPECT_EQ(a.finite.item(), b.finite.item());
    const NamedTensors state = gpu.optimizer->state(), expected = cpu.optimizer->state();
    for (size_t i = 0; i < state.size(); ++i)
      expect_close({state[i].second}, {expected[i].second}, tolerance, state[i].first.c_str());
    for (size_t i = 0; i < cpu.parameters.size(); ++i)
      expect_close({gpu.parameters[i].second.detach()}, {cpu.parameters[i].second.detach()},
                   tolerance, cpu.parameters[i].first.c_str());
  }
};

// Tensors of sizes about a chunk of a block and a pack of a thread: more than a small table holds.
std::vector<Tensor> values(DType dtype, size_t count = 170) {
  std::vector<Tensor> all;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{4096}, Shape{64, 129},
                             Shape{0, 4}, Shape{4099}, Shape{100, 100}})
    all.push_back(randn(shape).to(dtype));
  while (all.size() < count)
    all.push_back(randn({static_cast<int64_t>(all.size() % 19)}).to(dtype));
  return all;
}

const std::vector<std::pair<const char*, MakeOptimizer>>& makers() {
  static const std::vector<std::pair<const char*, MakeOptimizer>> all = {
      {"adamw",
       [](const auto& p) {
         return std::make_unique<AdamW>(decay_matrices(p, 0.3),
                                        AdamWOptions{.lr = 1e-2, .grad_clip = 1});
       }},
      {"sgd", [](const auto& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1}); }},
      {"sgd_momentum",
       [](const auto& p) {
         return std::make_unique<SGD>(
             p, SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2, .grad_clip = 3});
       }},
      {"sgd_nesterov",
       [](const auto& p) {
         return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.8, .nesterov = true});
       }},
  };
  return all;
}

TEST_F(CudaTraining, OptimizersTakeTheCpusSteps) {
  for (const auto& [name, make] : makers()) {
    for (const auto& [dtype, tolerance] : {std::pair(f64, 1e-13), std::pair(f32, 1e-6)}) {
      SCOPED_TRACE(std::string(name) + " " + name_of(dtype));
      Twins twins(values(dtype), make);
      for (int64_t step = 1; step <= 5; ++step) {
        twins.set_grads(step);
        twins.cpu.optimizer->step();
        twins.gpu.optimizer->step();
      }
      twins.expect_equal(tolerance);
    }
  }
}

TEST_F(CudaTraining, MoreParametersThanOneLaunchTakes) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Twins twins(values(f32, 1400), make);
    for (int64_t step = 1; step <= 2; ++step) {
      twins.set_grads(step);
      twins.cpu.optimizer->step();
      twins.gpu.optimizer->step();
    }
    twins.expect_equal(1e-5);  // many have one element, a difference of two numbers
  }
}

TEST_F(CudaTraining, ParametersMayHaveSeveralDtypes) {
  std::vector<Tensor> mixed;
  for (int64_t i = 0; i < 12; ++i)
    mixed.push_back(randn({40 + i}).to(i % 3 == 0 ? f32 : i % 3 == 1 ? f64 : bf16));
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Twins twins(mixed, make);
    for (int64_t step = 1; step <= 3; ++step) {
      twins.set_grads(step);
      twins.cpu.optimizer->step();
      twins.gpu.optimizer->step();
    }
    twins.expect_equal(0.02);
  }
}

// A step whose gradients or loss are not finite changes nothing but the counts of such steps.
TEST_F(CudaTraining, StepsThatAreNotFiniteAreSkipped) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Twins twins({randn({300}), randn({20, 300})}, make);
    for (int64_t step = 1; step <= 8; ++step) {
      twins.set_grads(step);
      const double bad = step % 2 ? INFINITY : std::nan("");
      const bool in_gradient = step == 2 || step == 3, in_loss = step == 6;
      if (in_gradient) {
        Tensor g = twins.cpu.parameters[1].second.grad().clone();
        g.mutable_data<float>()[4321] = static_cast<float>(bad);
        twins.cpu.parameters[1].second.set_grad(g);
        twins.gpu.parameters[1].second.set_grad(on_cuda(g));
      }
      const Tensor before = twins.gpu.parameters[0].second.detach().clone();
      const Tensor loss = full({}, in_loss ? bad : 2.5);
      twins.cpu.optimizer->step(loss);
      twins.gpu.optimizer->step(on_cuda(loss));
      EXPECT_EQ(same_bits(before, twins.gpu.parameters[0].second.detach()), in_gradient || in_loss)
          << "step " << step;
      twins.expect_equal(1e-6);
    }
    EXPECT_EQ(twins.gpu.optimizer->status().skipped.tolist(), (std::vector<double>{3, 0}));
  }
}

// Squares of floats may pass the largest float.
TEST_F(CudaTraining, NormsOfLargeGradients) {
  Twins twins({randn({5000}), randn({7})}, makers()[0].second);
  twins.set_grads(2, 1e30);
  twins.cpu.optimizer->step();
  twins.gpu.optimizer->step();
  EXPECT_TRUE(twins.gpu.optimizer->status().finite.item());
  EXPECT_NEAR(twins.gpu.optimizer->status().grad_norm.item() /
                  twins.cpu.optimizer->status().grad_norm.item(),
              1, 1e-14);
}

// What a step changes is read on the device: rate, counts of updates, and whether to skip.
TEST_F(CudaTraining, ReplayedOptimizersFollowTheirSteps) {
  for (const auto& [name, make] : makers()) {
    SCOPED_TRACE(name);
    Twins twins({randn({300}), randn({20, 30})}, make);
    std::vector<Tensor> memory;  // that the gradients stay in
    for (const auto& entry : twins.gpu.parameters) memory.push_back(empty_like(entry.second));
    Replay replay(cuda_device, {});
    for (int64_t step = 0; step < 7; ++step) {
      twins.set_grads(2, step == 4 ? INFINITY : 1);
      for (size_t i = 0; i < memory.size(); ++i) {
        memory[i].copy_(twins.gpu.parameters[i].second.grad());
        twins.gpu.parameters[i].second.set_grad(memory[i]);
      }
      const double lr = 0.01 * static_cast<double>(step + 1);
      twins.cpu.optimizer->set_lr(lr);
      twins.gpu.optimizer->set_lr(lr);
      twins.cpu.optimizer->step();
      replay.run([&] { twins.gpu.optimizer->step(); });
      twins.expect_equal(1e-6);
    }
    EXPECT_TRUE(replay.captured());
  }
}

}  // namespace
}  // namespace ink
