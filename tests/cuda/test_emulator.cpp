// The emulator itself: what it computes, and the mistakes of kernels that it must find.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/memory/device_backend.h"
#include "cuda/pack.cuh"
#include "cuda/wgmma.cuh"
#include "tests/support/error_of.h"

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
    of_warps[global_thread()] = warp_reduce<Plus>(value);
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
    if (threadIdx.x < 16) y[threadIdx.x] = warp_reduce<Plus>(1.0f);
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

struct Askew {
  static constexpr int kThreads = 32;
  float* y;
  __device__ void operator()() const { store(y + 2, Pack<float, 4>{}); }
};
TEST(EmulatorDeathTest, PacksThatAreNotAlignedAreFoundBySanitizers) {
#ifndef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "needs the sanitizers";
#endif
  Tensor y = zeros({8}, gpu);
  float* out = y.mutable_data<float>();
  EXPECT_DEATH(launch("askew", 1, Askew{out}), "misaligned address");
}

// ---- products of warpgroups, and barriers between warps

// y (128 x kN) = a (128 x 64) b by two warpgroups, after a third has copied both. b (kN x 64, or by
// columns 64 x kN) lies in panels of 64 columns.
enum class Slip {
  none,
  no_fence,       // before_products() is missing
  no_wait,        // for the products
  no_publish,     // of the copies
  no_copy_wait,   // before the copies are published
  touch,          // sums are written before they are waited for
  change_a,       // registers of a change before
  change_b,       // shared memory changes before
  early_free,     // of what products still read
  lone_warp,      // three warps start products
  order,          // warps of a warpgroup start different ones
  half_a_warp,    // starts products
  shifted,        // a panel that is not aligned to 1024 bytes
  outside,        // a matrix that leaves shared memory
  unswizzled,     // a descriptor of another layout
  few_arrivals,   // a phase that never ends
  not_started,    // a PhaseBarrier
  started_twice,  // a PhaseBarrier
  two_phases,     // end while a thread waits for one
  few_meet,       // at a barrier with a number
  two_sizes,      // of a barrier
};
template <int kN, bool kColumns, bool kRegisters, Slip slip = Slip::none>
struct Multiply {
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kPanel = 64 * (kColumns ? 64 : kN);
  struct Shared {
    alignas(1024) bfloat16 b[64 * kN];
    alignas(1024) bfloat16 a[128 * 64];
    PhaseBarrier full, free;
  };
  float* y;
  const bfloat16 *a, *b;

  __device__ void operator()(Shared& shared) const {
    if (threadIdx.x == 0) {
      if (slip != Slip::not_started) shared.full.start(kWarpgroup);
      if (slip == Slip::started_twice) shared.full.start(kWarpgroup);
      shared.free.start(2 * kWarpgroup);
    }
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
      produce(shared);
    } else {
      consume(shared);
    }
  }

  // Chunk c of row r of `rows` x `cols` numbers to the place of panels.
  __device__ void copy(bfloat16* to, const bfloat16* from, int rows, int cols) const {
    for (int i = static_cast<int>(threadIdx.x); i < rows * cols / 8; i += kWarpgroup) {
      const int row = i / (cols / 8), col = i % (cols / 8) * 8;
      const int place = col / 64 * rows * 64 + row * 64 + (col / 8 % 8 ^ row % 8) * 8;
      start_copy<16>(to + place, from + row * cols + col, true);
    }
  }
  __device__ void produce(Shared& shared) const {
    copy(shared.a, a, 128, 64);
    copy(shared.b, b, kColumns ? 64 : kN, kColumns ? kN : 64);
    end_copies();
    if (slip != Slip::no_copy_wait) wait_for_copies<0>();
    if (slip != Slip::no_publish) publish_to_products();
    if (slip != Slip::few_arrivals || threadIdx.x > 0) shared.full.arrive();
    if (slip == Slip::two_phases) shared.full.arrive();
    if (slip == Slip::few_meet) meet(2, 2 * kWarpgroup);
    if (slip == Slip::two_sizes) meet(2, threadIdx.x < kWarp ? 64 : 128);
    shared.free.wait(0);
    shared.a[threadIdx.x] = bfloat16(-1.0f);
    shared.b[threadIdx.x] = bfloat16(-1.0f);
  }

  __device__ void consume(Shared& shared) const {
    const int row0 = (warp_id() - 4) * 16, g = lane_id() / 4, t = lane_id() % 4;
    float sums[kN / 8][4] = {};
    uint32_t held[4][4];
    shared.full.wait(0);
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + g + i % 2 * 8, col = 16 * k + 2 * t + i / 2 * 8;
        held[k][i] = a[row * 64 + col].bits | uint32_t{a[row * 64 + col + 1].bits} << 16;
      }
    }
    if (slip == Slip::half_a_warp && lane_id() == 7) return;
    if (slip != Slip::lone_warp || warp_id() != 5) start(shared, row0, sums, held);
    if (slip == Slip::touch && warp_id() == 6) sums[0][0] = 1;
    if (slip == Slip::change_a) held[3][3] ^= 1;
    if (slip == Slip::change_b && threadIdx.x == 128) shared.b[0] = bfloat16(3.0f);
    if (slip == Slip::early_free) shared.free.arrive();
    if (slip != Slip::no_wait) wait_for_products<0>();
    settle(sums);
    if (slip != Slip::early_free) shared.free.arrive();
    for (int n = 0; n < kN / 8; ++n) {
      for (int e = 0; e < 4; ++e)
        y[(row0 + g + e / 2 * 8) * kN + 8 * n + 2 * t + e % 2] = sums[n][e];
    }
  }
  __device__ void start(Shared& shared, int row0, float (&sums)[kN / 8][4],
                        const uint32_t (&held)[4][4]) const {
    if (slip != Slip::no_fence) before_products();
    const SharedMatrix from_a(shared.a + row0 / 64 * 64 * 64);
    SharedMatrix from_b(shared.b, 2 * kPanel);
    if (slip == Slip::shifted) from_b = SharedMatrix(shared.b + 64);
    if (slip == Slip::outside) from_b = SharedMatrix(shared.a + 96 * 64);
    if (slip == Slip::unswizzled) from_b.bits &= ~(uint64_t{1} << 62);
    for (int k = 0; k < 4; ++k) {
      const int step = slip == Slip::order && warp_id() == 7 ? 3 - k : k;
      const SharedMatrix part = from_b + step * (kColumns ? 2048 : 32);
      if constexpr (kRegisters) {
        start_product<kN, kColumns>(sums, held[k], part, k > 0);
      } else {
        start_product<kN, kColumns>(sums, from_a + 32 * step, part, k > 0);
      }
    }
    end_products();
  }
};

std::vector<double> whole_numbers(int64_t n, int64_t scatter) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = static_cast<double>(i * scatter % 17 - 8);
  return values;
}

template <int kN, bool kColumns, bool kRegisters, Slip slip = Slip::none>
void multiply() {
  const Shape shape_b = kColumns ? Shape{64, kN} : Shape{kN, 64};
  const Tensor a = tensor(whole_numbers(128 * 64, 7), {bf16, cpu_device}).reshape({128, 64}),
               b = tensor(whole_numbers(kN * 64, 11), {bf16, cpu_device}).reshape(shape_b);
  const Tensor a_there = a.to(gpu), b_there = b.to(gpu);
  Tensor y = zeros({128, kN}, {f32, gpu});
  launch("multiply", 1,
         Multiply<kN, kColumns, kRegisters, slip>{y.mutable_data<float>(), a_there.data<bfloat16>(),
                                                  b_there.data<bfloat16>()});
  const auto got = y.tolist(), of_a = a.tolist(), of_b = b.tolist();
  for (size_t i = 0; i < 128; ++i) {
    for (size_t j = 0; j < kN; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 64; ++k)
        sum += of_a[i * 64 + k] * of_b[kColumns ? k * kN + j : j * 64 + k];
      ASSERT_EQ(got[i * kN + j], sum) << "row " << i << ", column " << j;
    }
  }
}

TEST(EmulatorProducts, AreThoseOfMatrices) {
  multiply<64, false, false>();
  multiply<64, false, true>();
  multiply<64, true, false>();
  multiply<64, true, true>();
  multiply<128, false, false>();
  multiply<128, false, true>();
  multiply<128, true, false>();
  multiply<128, true, true>();
}

template <Slip slip>
void expect_error(const std::string& expected) {
  const std::string error = error_of([] { multiply<64, false, true, slip>(); });
  EXPECT_NE(error.find("multiply: emulator: "), std::string::npos) << error;
  EXPECT_NE(error.find(expected), std::string::npos) << error << "\nexpected: " << expected;
}

TEST(EmulatorProducts, MistakesWithRegistersAreErrors) {
  expect_error<Slip::no_fence>("a product without before_products()");
  expect_error<Slip::no_wait>("has left without a wait for its product");
  expect_error<Slip::touch>("a sum of a product changed before its end was waited for");
  expect_error<Slip::change_a>("an operand of a product changed");
}
TEST(EmulatorProducts, MistakesWithSharedMemoryAreErrors) {
  expect_error<Slip::no_publish>("copies, and has not published the copy");
  expect_error<Slip::no_copy_wait>("copies, and has not published the copy");
  expect_error<Slip::change_b>("an operand of a product changed");
  expect_error<Slip::early_free>("an operand of a product changed");
  expect_error<Slip::shifted>("expected a first row aligned to 1024 bytes");
  expect_error<Slip::outside>("not in the block's shared memory, or leaves it");
  expect_error<Slip::unswizzled>("expected 128-byte swizzling");
}
TEST(EmulatorProducts, WarpsThatPartAreErrors) {
  expect_error<Slip::lone_warp>("the warps of a warpgroup part");
  expect_error<Slip::order>("the warps of a warpgroup part");
  expect_error<Slip::half_a_warp>("the threads of a warp part");
}
TEST(EmulatorBarriers, AWaitThatNothingEndsIsAnError) {
  expect_error<Slip::few_arrivals>("a wait never ends: thread 0 waits at test_emulator.cpp");
  expect_error<Slip::few_meet>("(barrier 2 lacks 128 of 256 arrivals)");
}
TEST(EmulatorBarriers, MistakesWithBarriersAreErrors) {
  expect_error<Slip::not_started>("a PhaseBarrier that was not started");
  expect_error<Slip::started_twice>("a PhaseBarrier is started twice");
  expect_error<Slip::two_phases>("end before a thread that waits for one");
  expect_error<Slip::two_sizes>("and whole warps, as all others");
}

// Two warps hand a number to and fro: by phases, or by barriers with numbers.
template <bool phases>
struct TakeTurns {
  static constexpr int kThreads = 64;
  struct Shared {
    PhaseBarrier mine[2];
    int64_t number;
  };
  int64_t* last;
  __device__ void operator()(Shared& shared) const {
    if (threadIdx.x == 0) {
      for (PhaseBarrier& barrier : shared.mine) barrier.start(kWarp);
      shared.number = 0;
    }
    __syncthreads();
    const int me = warp_id();
    if (me == 1) pass(shared, 0);
    for (unsigned round = 0; round < 10; ++round) {
      if constexpr (phases) {
        shared.mine[me].wait(round % 2);
      } else {
        meet(1 + me, 64);
      }
      if (lane_id() == 0 && shared.number++ % 2 != me) shared.number = -1000;
      __syncwarp();
      if (me == 0 || round < 9) pass(shared, 1 - me);
    }
    if (me == 1 && lane_id() == 0) *last = shared.number;
  }
  __device__ void pass(Shared& shared, int to) const {
    if constexpr (phases) {
      shared.mine[to].arrive();
    } else {
      report(1 + to, 64);
    }
  }
};
TEST(EmulatorBarriers, WarpsTakeTurns) {
  Tensor last = zeros({2}, {i64, gpu});
  int64_t* to = last.mutable_data<int64_t>();
  launch("phases", 1, TakeTurns<true>{to});
  launch("numbers", 1, TakeTurns<false>{to + 1});
  EXPECT_EQ(last.tolist(), (std::vector<double>{20, 20}));
}

struct Crooked {
  static constexpr int kThreads = 32;
  struct Shared {
    char bytes[1024];
  };
  const float* x;
  int at;
  __device__ void operator()(Shared& shared) const { start_copy<16>(shared.bytes + at, x, true); }
};
TEST(Emulator, CopiesThatACardRefusesAreErrors) {
  const Tensor x = numbers(8);
  const auto copy = [&](int at) {
    return error_of([&] { launch("copy", 1, Crooked{x.data<float>(), at}); });
  };
  EXPECT_NE(copy(8).find("a copy of 16 bytes that is not aligned"), std::string::npos) << copy(8);
  EXPECT_NE(copy(1024).find("not in the block's shared memory"), std::string::npos) << copy(1024);
}

struct Large {
  static constexpr int kThreads = 32;
  struct Shared {
    char bytes[164 * 1024];
  };
  __device__ void operator()(Shared&) const {}
};
TEST(Emulator, TheCardIsOfTheCapabilityInTheEnvironment) {
  launch("large", 1, Large{});
  ASSERT_EQ(setenv("INKLING_EMULATED_CAPABILITY", "80", 1), 0);
  const std::string large = error_of([] { launch("large", 1, Large{}); });
  EXPECT_NE(large.find("167936 bytes of shared memory; a block may have 166912"), std::string::npos)
      << large;
  expect_error<Slip::none>("wgmma needs a card of compute capability 9.0");
  unsetenv("INKLING_EMULATED_CAPABILITY");
}

// What another library put into a stream may have to wait; marks tell whether it has come past.
TEST(Emulator, StreamsBesideTheFirstMayBeBehind) {
  const DeviceBackend& backend = backend_of(gpu);
  const auto one = static_cast<cudaStream_t>(backend.new_stream(gpu)),
             other = static_cast<cudaStream_t>(backend.new_stream(gpu));
  bool may = false;
  std::string order;
  one->push(one, {[&] { return may; }, [&] { order += "one "; }});
  EXPECT_TRUE(backend.is_past(backend.mark(nullptr, gpu))) << "the first is never behind";
  void* const behind = backend.mark(one, gpu);
  backend.follow(other, backend.mark(one, gpu));
  other->push(other, {[] { return true; }, [&] { order += "other"; }});
  void* const after = backend.mark(other, gpu);
  EXPECT_FALSE(backend.is_past(behind));
  EXPECT_FALSE(backend.is_past(after));
  may = true;
  EXPECT_TRUE(backend.is_past(behind));
  EXPECT_TRUE(backend.is_past(after));
  EXPECT_EQ(order, "one other");
}

// Notes the lane that counts first.
struct First {
  static constexpr int kThreads = 32;
  int64_t* y;
  __device__ void operator()() const {
    if (atomicAdd(&y[0], int64_t{1}) == 0) y[1] = threadIdx.x;
  }
};
TEST(EmulatorOrder, LanesComeInEitherOrder) {
  std::set<double> first;
  for (int i = 0; i < 20; ++i) {
    Tensor y = zeros({2}, {i64, gpu});
    launch("first", 1, First{y.mutable_data<int64_t>()});
    first.insert(y.tolist()[1]);
  }
  EXPECT_EQ(first, (std::set<double>{0, 31}));
}

}  // namespace
}  // namespace ink::cuda
