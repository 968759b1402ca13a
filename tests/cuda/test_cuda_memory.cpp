// The memory of a CUDA device: where blocks come from, and what happens when there is no more.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "autograd/replay.h"
#include "tests/cuda/on_cuda.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"

namespace ink {
namespace {

constexpr int64_t kMB = int64_t{1} << 20;

class CudaMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    empty_cache(cuda_device);
  }
  static Tensor block(int64_t bytes) { return empty({bytes / 8}, {f64, cuda_device}); }
  static int64_t raw_allocations() { return memory_stats(cuda_device).raw_allocations; }
};

TEST_F(CudaMemory, WhatIsFreedInASegmentIsOneAgain) {
  const Tensor other = block(100 * kMB);
  Tensor a = block(20 * kMB), b = block(20 * kMB);
  const int64_t before = raw_allocations();
  a = b = Tensor();
  const Tensor both = block(40 * kMB);
  EXPECT_EQ(raw_allocations(), before);
}

// Two segments may happen to lie side by side (here they do): a copy over their seam is refused.
TEST_F(CudaMemory, NoBlockSpansTwoSegments) {
  Tensor a = block(70 * kMB), b = block(70 * kMB), c = block(70 * kMB);
  const int64_t before = raw_allocations();
  a = b = c = Tensor();
  const Tensor wide = block(140 * kMB);
  EXPECT_EQ(raw_allocations(), before + 1);
  const Tensor narrow = block(70 * kMB);
  EXPECT_EQ(raw_allocations(), before + 1);
}

// A card that is full of cached blocks of the wrong size gives them back and is asked again.
TEST_F(CudaMemory, CachedBlocksMakeRoomForOthers) {
#ifndef NDEBUG
  GTEST_SKIP() << "fresh memory is filled: too much of it";
#endif
  int64_t most = int64_t{1} << 42;
  while (error_of([&] { block(most); }).find("cannot allocate") != std::string::npos)
    most -= most / 8;
  empty_cache(cuda_device);
  block(most / 8 * 5);
  const int64_t held = memory_stats(cuda_device).bytes_held;
  EXPECT_GE(held, most / 8 * 5);
  const Tensor larger = block(most / 8 * 6);
  EXPECT_LT(memory_stats(cuda_device).bytes_held, held + most / 8 * 2) << "the first is kept";
  EXPECT_EQ(ones({3}, cuda_device).tolist(), std::vector<double>(3, 1.0));
}

// It has a stream and cells of its own, whatever is asked of it first.
TEST_F(CudaMemory, ASecondCardMayBeAskedForItsNameFirst) {
  if (cuda_device_count() < 2)
    GTEST_SKIP() << "one card; the emulator has INKLING_EMULATED_DEVICES";
  const Device second{Device::CUDA, 1};
  EXPECT_NE(describe(second), "");
  for (const Device device : {second, cuda_device})
    EXPECT_EQ(sum(ones({3}, device)).item(), 3) << device.index;
}

// For tools that look for accesses outside of a tensor: the same numbers.
TEST_F(CudaMemory, ABlockMayHaveASegmentOfItsOwn) {
  const std::string bench =
      "inkling bench --device cuda --n_layer 1 --n_head 1 --n_embd 16 --block_size 8 --batch_size "
      "1 "
      "--vocab_size 65 --steps 4 --profile_steps 0 --json ";
  const TempFolder folder;
  const auto run = [&](const std::string& name, const std::string& environment) {
    const std::string file = (folder / name).string();
    const Ran ran = run_shell(environment + bench + file);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto losses = text.find("\"losses\"");
    EXPECT_NE(losses, std::string::npos) << text;
    return text.substr(losses, text.find(']', losses) - losses);
  };
  EXPECT_EQ(run("direct", "INKLING_CUDA_ALLOCATOR=direct "), run("cached", ""));
  const Ran wrong =
      run_shell("INKLING_CUDA_ALLOCATOR=other " + bench + (folder / "wrong").string());
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("INKLING_CUDA_ALLOCATOR: expected direct"), std::string::npos)
      << wrong.err;
}

}  // namespace
}  // namespace ink
