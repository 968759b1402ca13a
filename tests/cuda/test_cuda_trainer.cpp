// Training on a CUDA device: the losses of the CPU, the same bits every time, replayed or op by op,
// and checkpoints that move between devices. Runs where there is a device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/memory/device_backend.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "train/trainer.h"

namespace ink {
namespace {

constexpr Device gpu{Device::CUDA, 0};

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    context().observers.clear();  // nothing is replayed while one looks on
  }
  const ContextGuard guard_;
  TempFolder folder_;

  TrainConfig config(const std::string& device, const std::string& name = "run") const {
    TrainConfig config;
    config.n_layer = config.n_head = 2;
    config.n_embd = 16;
    config.block_size = 16;
    config.batch_size = 2;
    config.dropout = 0.1;
    config.bias = true;
    config.learning_rate = 1e-3;
    config.max_iters = 100;
    config.warmup_iters = 5;
    config.eval_iters = 2;
    config.device = device;
    config.out_dir = (folder_ / name).string();
    return config;
  }
};

std::vector<double> losses(Trainer& trainer, int64_t steps) {
  std::vector<double> all;
  for (int64_t i = 0; i < steps; ++i) {
    trainer.step();
    all.push_back(trainer.progress().loss);
  }
  return all;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(Cuda, LossesAreTheCpus) {
  Trainer cpu(config("cpu")), cuda(config("cuda"));
  const int steps = std::getenv("INKLING_TEST_LARGEST") != nullptr ? 30 : 100;
  const auto expected = losses(cpu, steps), got = losses(cuda, steps);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-4 * expected[i]) << "step " << i;
  EXPECT_NEAR(cuda.evaluate().loss, cpu.evaluate().loss, 1e-4 * cpu.evaluate().loss);
  EXPECT_EQ(cuda.model().parameters()[0].device(), gpu);
}

TEST_F(Cuda, Bfloat16TrainsToNearlyTheSameLosses) {
  TrainConfig narrow = config("cuda");
  narrow.dtype = "bfloat16";
  Trainer cpu(config("cpu")), cuda(narrow);
  const auto expected = losses(cpu, 30), got = losses(cuda, 30);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-2 * expected[i]) << "step " << i;
}

// An observer keeps a step from being replayed.
class CudaReplay : public Cuda, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, CudaReplay, testing::Values("float32", "bfloat16"));

TEST_P(CudaReplay, StepsHaveTheBitsOfThoseDoneOpByOp) {
  struct Nothing : Observer {};
  TrainConfig accumulating = config("cuda");
  accumulating.gradient_accumulation_steps = 2;
  accumulating.dtype = GetParam();
  TrainConfig beside = accumulating;
  beside.out_dir = (folder_ / "plain").string();
  Trainer replayed(accumulating), plain(beside);
  for (int i = 0; i < 8; ++i) {
    replayed.step();
    {
      Nothing observer;
      const Observe observe(observer);
      plain.step();
    }
    if (i == 5) {
      EXPECT_EQ(replayed.evaluate().loss, plain.evaluate().loss);
    }
    EXPECT_EQ(replayed.progress().loss, plain.progress().loss) << "step " << i;
  }
  EXPECT_TRUE(replayed.replaying());
  EXPECT_FALSE(plain.replaying());
  replayed.save("ckpt");
  const std::string first = read_file(folder_ / "run/ckpt/model.safetensors");
  plain.save("ckpt");
  EXPECT_EQ(first, read_file(folder_ / "plain/ckpt/model.safetensors"));
  EXPECT_FALSE(first.empty());
}

TEST_F(Cuda, StepsTouchNoRawMemory) {
  Trainer trainer(config("cuda"));
  for (int i = 0; i < 5; ++i) trainer.step();
  EXPECT_TRUE(trainer.replaying());
  const MemoryStats before = memory_stats(gpu);
  for (int i = 0; i < 10; ++i) trainer.step();
  EXPECT_EQ(memory_stats(gpu).raw_allocations, before.raw_allocations);
  EXPECT_EQ(memory_stats(gpu).bytes_in_use, before.bytes_in_use);
  EXPECT_EQ(Node::live, 0);
}

// A small step is as long as its launches are many. The emulator counts them without running them.
TEST_F(Cuda, RecordedStepsHaveFewLaunches) {
  if (describe(gpu) != "emulated GPU") GTEST_SKIP() << "the emulator names launches by their op";
  const std::string graph = (folder_ / "graph.dot").string();
  for (const auto& [setting, most] :
       {std::pair("baby", 94), std::pair("char --dtype bfloat16 --dropout 0.2", 134)}) {
    const Ran ran =
        run_shell("INKLING_EMULATED_DRY=1 INKLING_CUDA_GRAPH=" + graph +
                  " inkling bench --device cuda --steps 2 --profile_steps 0 --config " + setting);
    std::map<std::string, int> by_op;
    int all = 0;
    std::ifstream in(graph);
    for (std::string line; std::getline(in, line);) {
      const size_t begin = line.find("label=\"");
      if (begin == std::string::npos) continue;
#ifndef NDEBUG  // fresh memory is filled with NaN
      if (line.find("\"memset\"", begin) != std::string::npos) continue;
#endif
      ++by_op[line.substr(begin + 7, line.rfind('"') - begin - 7)];
      ++all;
    }
    std::string list;
    for (const auto& [op, count] : by_op) list += op + " " + std::to_string(count) + "\n";
    EXPECT_GT(all, 50) << ran.err;
    EXPECT_LE(all, most) << setting << "\n" << list;
    std::filesystem::remove(graph);
  }
}

TEST_F(Cuda, CheckpointsMoveBetweenDevices) {
  for (const auto& [from, to] : {std::pair("cpu", "cuda"), std::pair("cuda", "cpu")}) {
    TrainConfig begun = config(from, from);
    {
      Trainer trainer(begun);
      losses(trainer, 6);
      trainer.save("ckpt");
    }
    begun.init_from = "resume";
    Trainer same(begun);
    begun.device = to;
    Trainer moved(begun);
    EXPECT_EQ(moved.steps_done(), 6);
    const auto expected = losses(same, 6), got = losses(moved, 6);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], expected[i], 1e-4 * expected[i]);
  }
}

TEST_F(Cuda, ResumedRunsHaveTheBitsOfUninterruptedOnes) {
  TrainConfig straight = config("cuda", "straight"), parts = config("cuda", "parts");
  {
    Trainer trainer(straight);
    losses(trainer, 9);
    trainer.save("ckpt");
  }
  for (const int64_t stop : {2, 5, 9}) {
    Trainer trainer(parts);
    losses(trainer, stop - trainer.steps_done());
    trainer.save("ckpt");
    parts.init_from = "resume";
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json"})
    EXPECT_EQ(read_file(folder_ / "straight/ckpt" / file),
              read_file(folder_ / "parts/ckpt" / file));
}

TEST_F(Cuda, SamplesAreTheCpus) {
  Trainer trainer(config("cpu"));
  losses(trainer, 20);
  LanguageModel& model = trainer.model();
  model.eval();
  GenerateOptions options;
  options.max_new_tokens = 30;
  options.top_k = 20;
  options.temperature = 0.8;
  const auto sample = [&](Device device) {
    const ContextGuard guard;
    context().random = {.seed = 3};
    return model.generate(zeros({8, 1}, {i64, device}), options).tolist<int64_t>();
  };
  const auto expected = sample(cpu_device);
  model.to(gpu);
  EXPECT_EQ(sample(gpu), expected);
}

TEST_F(Cuda, TheProgramTrainsSamplesAndEvaluates) {
  const std::string run = " --device cuda --out_dir " + (folder_ / "run").string();
  const Ran trained = run_program(
      "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 2 --max_iters 12 "
      "--eval_interval 5 --eval_iters 1 --sample_interval 10 --dtype bfloat16 --data " +
      folder_.write("text.txt", std::string(40, 'a') + std::string(40, 'b')).string() +
      " --val_fraction 0.4" + run);
  EXPECT_EQ(trained.code, 0) << trained.err;
  const Ran on_gpu = run_program("sample --max_new_tokens 12" + run),
            on_cpu =
                run_program("sample --max_new_tokens 12 --out_dir " + (folder_ / "run").string());
  EXPECT_EQ(on_gpu.code, 0) << on_gpu.err;
  EXPECT_EQ(on_gpu.out, on_cpu.out);
  EXPECT_GE(on_gpu.out.size(), 13u);
  EXPECT_EQ(run_program("eval" + run).code, 0);
}

TEST_F(Cuda, TheProgramChecksGradients) {
  for (const char* only : {"softmax", "Linear"}) {
    const Ran ran = run_program(std::string("gradcheck --device cuda --only ") + only);
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("\n0 of "), std::string::npos) << ran.out;
  }
  EXPECT_EQ(run_program("gradcheck --device cuda:100 --only softmax").code, 1);
}

TEST_F(Cuda, TooMuchMemoryIsAnErrorThatSaysWhatToDo) {
  const std::string error = error_of([] { zeros({int64_t{1} << 45}, gpu); });
  EXPECT_NE(error.find("memory: cannot allocate 140737488355328 bytes on cuda:0"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("smaller batch"), std::string::npos) << error;
  EXPECT_EQ(ones({3}, gpu).tolist(), std::vector<double>(3, 1.0));
}

TEST_F(Cuda, TensorsOnTwoDevicesDoNotMix) {
  const std::string error = error_of([] { ones({3}, gpu) + ones({3}); });
  EXPECT_NE(error.find("tensors live on cuda:0 and cpu"), std::string::npos) << error;
}

// What a person meets who tries a card for the first time.
TEST(Device, AMachineThatDoesNotDoIsSaidWhy) {
  if (cuda_device_count() == 0 || describe(gpu) != "emulated GPU")
    GTEST_SKIP() << "of the emulator's card";
  const auto expect_told = [](const std::string& setting, const std::string& words) {
    const Ran ran = run_shell(setting + " inkling bench --device cuda");
    EXPECT_EQ(ran.code, 1) << setting;
    EXPECT_NE(ran.err.find(words), std::string::npos) << setting << ": " << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  };
  expect_told("INKLING_EMULATED_DRIVER=12040",
              "cuda:0 is not available: its driver is of CUDA 12.4; this build of inkling needs "
              "one of CUDA 13 or newer");
  expect_told("INKLING_EMULATED_DRIVER=0",
              "no NVIDIA driver found (the CUDA toolkit alone has none; nvidia-smi shows whether "
              "one runs)");
  expect_told(
      "INKLING_EMULATED_CAPABILITY=75",
      "cuda:0: emulated GPU has compute capability 7.5; inkling's kernels need 8.0 or newer "
      "(cards from 2020 on)");
  expect_told("INKLING_EMULATED_CAPABILITY=120",
              "no kernel image is available for execution on the device; configure with "
              "-DCMAKE_CUDA_ARCHITECTURES=native on the machine with the card");
  expect_told("INKLING_EMULATED_MEMORY=0",
              "cudaMalloc: out of memory; nvidia-smi shows which programs hold the card's memory");
  expect_told("INKLING_EMULATED_MEMORY=9000",
              "use a smaller batch, block or model, or --recompute");
}

}  // namespace
}  // namespace ink
