// The emulator itself: what it computes, and the mistakes of kernels that it must find.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "cuda/launch.cuh"
#include "tests/error_of.h"

namespace ink::cuda {
namespace {

constexpr Device gpu{Device::CUDA, 0};

Tensor numbers(int64_t n) { return arange(0, static_cast<double>(n), {f32, cpu_device}).to(gpu); }

// y[i] = x[kThreads - 1 - i], by way of shared memory.
template <bool barrier>
struct Reverse {
  static constexpr int kThreads = 256;
  struct Shared {
    float values[kThreads];
  };
  float* y;
  const float* x;
  __device__ void operator()(Shared& shared) const {
    shared.values[threadIdx.x] = x[threadIdx.x];
    if constexpr (barrier) __syncthreads();
    y[threadIdx.x] = shared.values[kThreads - 1 - threadIdx.x];
  }
};

TEST(Emulator, ThreadsOfABlockMeetAtBarriers) {
  const Tensor x = numbers(256);
  Tensor y = zeros_like(x);
  launch("reverse", 1, Reverse<true>{y.mutable_data<float>(), x.data<float>()});
  for (int64_t i = 0; i < 256; ++i)
    EXPECT_EQ(y.tolist()[static_cast<size_t>(i)], 255.0 - static_cast<double>(i));
}

// What another warp will write is not there yet: shared memory starts as NaN.
TEST(Emulator, AMissingBarrierShows) {
  const Tensor x = numbers(256);
  Tensor y = zeros_like(x);
  launch("reverse", 1, Reverse<false>{y.mutable_data<float>(), x.data<float>()});
  int64_t wrong = 0;
  for (const double value : y.tolist()) wrong += std::isnan(value);
  EXPECT_GT(wrong, 0);
}

struct Sums {
  static constexpr int kThreads = 128;
  struct Shared {
    BlockScratch<double> scratch;
  };
  double *of_warps, *of_blocks;
  __device__ void operator()(Shared& shared) const {
    const auto value = static_cast<double>(global_thread());
    of_warps[global_thread()] = warp_sum(value);
    for (int round = 0; round < 2; ++round)
      of_blocks[global_thread()] = block_sum<kThreads>(value, shared.scratch);
  }
};

TEST(Emulator, SumsOfWarpsAndBlocks) {
  Tensor warps = zeros({384}, {f64, gpu}), blocks = zeros({384}, {f64, gpu});
  launch("sums", 3, Sums{warps.mutable_data<double>(), blocks.mutable_data<double>()});
  const auto of_warps = warps.tolist(), of_blocks = blocks.tolist();
  for (size_t i = 0; i < 384; ++i) {
    const auto sum = [](size_t first, size_t count) {
      return static_cast<double>(count * (2 * first + count - 1)) / 2;
    };
    EXPECT_EQ(of_warps[i], sum(i / 32 * 32, 32));
    EXPECT_EQ(of_blocks[i], sum(i / 128 * 128, 128));
  }
}

struct DifferentBarriers {
  static constexpr int kThreads = 64;
  __device__ void operator()() const {
    if (threadIdx.x < 40) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
};
TEST(Emulator, ThreadsAtDifferentBarriersAreAnError) {
  const std::string error = error_of([] { launch("split", 1, DifferentBarriers{}); });
  EXPECT_NE(error.find("split: emulator: the threads of a block part"), std::string::npos) << error;
}

struct LeavesEarly {
  static constexpr int kThreads = 64;
  __device__ void operator()() const {
    if (threadIdx.x == 3) return;
    __syncthreads();
  }
};
TEST(Emulator, AThreadThatLeavesWhileOthersWaitIsAnError) {
  const std::string error = error_of([] { launch("leave", 1, LeavesEarly{}); });
  EXPECT_NE(error.find("thread 3 has left"), std::string::npos) << error;
}

struct HalfAShuffle {
  static constexpr int kThreads = 32;
  float* y;
  __device__ void operator()() const {
    if (threadIdx.x < 16) y[threadIdx.x] = warp_sum(1.0f);
  }
};
TEST(Emulator, AShuffleOfSomeLanesIsAnError) {
  Tensor y = zeros({32}, gpu);
  float* out = y.mutable_data<float>();
  const std::string error = error_of([&] { launch("half", 1, HalfAShuffle{out}); });
  EXPECT_NE(error.find("the threads of a warp part"), std::string::npos) << error;
  launch("reverse", 1,
         Reverse<true>{zeros({256}, gpu).mutable_data<float>(), numbers(256).data<float>()});
}

TEST(EmulatorDeathTest, TheHostCannotReadDeviceMemory) {
  const Tensor x = numbers(4);
  EXPECT_DEATH(static_cast<void>(std::vector<float>(x.data<float>(), x.data<float>() + 4)), "");
}

struct TooFar {
  static constexpr int kThreads = 32;
  float* y;
  __device__ void operator()() const { y[threadIdx.x] = 1; }
};
TEST(EmulatorDeathTest, WritesBeyondATensorAreFoundByTheAddressSanitizer) {
#ifndef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "needs the address sanitizer";
#endif
  Tensor y = zeros({31}, gpu);
  float* out = y.mutable_data<float>();
  EXPECT_DEATH(launch("too far", 1, TooFar{out}), "use-after-poison");
}

}  // namespace
}  // namespace ink::cuda
