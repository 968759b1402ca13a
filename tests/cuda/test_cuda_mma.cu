// The wrappers of cuda/mma.cuh against what they say they do: on a GPU, and as emulated.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/memory/device_backend.h"
#include "cuda/mma.cuh"

namespace ink::cuda {
namespace {

constexpr Device gpu{Device::CUDA, 0};

class CudaMma : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    backend_of(gpu).enter(gpu);
  }
};

// Whole numbers up to 128 in size, which bf16 holds, and so do f32 sums of their products.
std::vector<float> numbers(int n, int seed) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>((i * 37 + seed) % 257 - 128));
  return values;
}
Tensor on_device(const std::vector<float>& values, DType dtype) {
  return from_vector(values).to(dtype).to(gpu);
}

__device__ inline uint32_t pair(bfloat16 first, bfloat16 second) {
  return first.bits | uint32_t{second.bits} << 16;
}

// d (16 x 8) += a (16 x 16) b (16 x 8), each element where cuda/mma.cuh says.
struct Product {
  static constexpr int kThreads = 32;
  float* d;
  const bfloat16 *a, *b;
  __device__ void operator()() const {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const auto of_a = [&](int row, int col) {
      return pair(a[row * 16 + col], a[row * 16 + col + 1]);
    };
    const auto of_b = [&](int row) { return pair(b[row * 8 + g], b[(row + 1) * 8 + g]); };
    const uint32_t x[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8),
                           of_a(g + 8, 2 * t + 8)};
    const uint32_t y[2] = {of_b(2 * t), of_b(2 * t + 8)};
    float* const top = d + g * 8 + 2 * t;
    float* const low = top + 64;
    float sums[4] = {top[0], top[1], low[0], low[1]};
    mma_m16n8k16(sums, x, y);
    top[0] = sums[0], top[1] = sums[1], low[0] = sums[2], low[1] = sums[3];
  }
};

TEST_F(CudaMma, AddsTheProductOfTwoTiles) {
  const auto a = numbers(256, 1), b = numbers(128, 50), d = numbers(128, 99);
  Tensor result = on_device(d, f32);
  const Tensor left = on_device(a, bf16), right = on_device(b, bf16);
  launch("mma", 1,
         Product{result.mutable_data<float>(), left.data<bfloat16>(), right.data<bfloat16>()});
  const std::vector<double> got = result.tolist();
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = d[i * 8 + j];
      for (size_t k = 0; k < 16; ++k) sum += double{a[i * 16 + k]} * double{b[k * 8 + j]};
      EXPECT_EQ(got[i * 8 + j], sum) << "row " << i << ", column " << j;
    }
  }
}

// Four matrices, one below the other, by way of shared memory. y (lanes, matrices, 2): what lanes
// got of them.
template <bool transposed>
struct Matrices {
  static constexpr int kThreads = 32;
  struct Shared {
    alignas(16) bfloat16 x[4 * 64];
  };
  float* y;
  const bfloat16* x;
  __device__ void operator()(Shared& shared) const {
    for (int i = lane_id(); i < 4 * 64; i += kThreads) shared.x[i] = x[i];
    __syncwarp();
    uint32_t r[4];
    const bfloat16* const row = shared.x + lane_id() * 8;
    transposed ? load_transposed(r, row) : load_matrices(r, row);
    for (int m = 0; m < 4; ++m) {
      y[lane_id() * 8 + 2 * m] = first_of(r[m]);
      y[lane_id() * 8 + 2 * m + 1] = second_of(r[m]);
    }
  }
};

template <bool transposed>
void expect_matrices() {
  const auto x = numbers(256, 3);
  const Tensor input = on_device(x, bf16);
  Tensor y = zeros({32, 4, 2}, {f32, gpu});
  launch("ldmatrix", 1, Matrices<transposed>{y.mutable_data<float>(), input.data<bfloat16>()});
  const std::vector<double> got = y.tolist();
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t m = 0; m < 4; ++m) {
      for (size_t e = 0; e < 2; ++e) {
        const size_t g = lane / 4, other = lane % 4 * 2 + e;
        const double expected = x[m * 64 + (transposed ? other * 8 + g : g * 8 + other)];
        EXPECT_EQ(got[lane * 8 + m * 2 + e], expected) << "lane " << lane << ", matrix " << m;
      }
    }
  }
}
TEST_F(CudaMma, LoadsMatrices) { expect_matrices<false>(); }
TEST_F(CudaMma, LoadsMatricesTransposed) { expect_matrices<true>(); }

// y[i] = x[i], in two groups of copies that are waited for one after the other; zeros in odd ones.
struct Copies {
  static constexpr int kThreads = 32;
  struct Shared {
    alignas(16) float x[2][kThreads * 4];
    alignas(8) float narrow[kThreads * 2];
  };
  float *y, *early;
  const float* x;
  __device__ void operator()(Shared& shared) const {
    const int i = static_cast<int>(threadIdx.x);
    start_copy<16>(&shared.x[0][4 * i], x + 4 * i, i % 2 == 0);
    end_copies();
    start_copy<16>(&shared.x[1][4 * i], x + 4 * (kThreads + i), i % 2 == 0);
    start_copy<8>(&shared.narrow[2 * i], x + 2 * i, i % 2 == 0);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    for (int k = 0; k < 4; ++k) early[4 * i + k] = shared.x[0][4 * (31 - i) + k];
    wait_for_copies<0>();
    __syncthreads();
    for (int k = 0; k < 4; ++k) y[4 * i + k] = shared.x[1][4 * (31 - i) + k];
    for (int k = 0; k < 2; ++k) y[4 * kThreads + 2 * i + k] = shared.narrow[2 * (31 - i) + k];
  }
};

TEST_F(CudaMma, CopiesArriveBeforeTheyAreNeeded) {
  const auto x = numbers(256, 11);
  const Tensor input = on_device(x, f32);
  Tensor y = zeros({192}, {f32, gpu}), early = zeros({128}, {f32, gpu});
  launch("cp.async", 1,
         Copies{y.mutable_data<float>(), early.mutable_data<float>(), input.data<float>()});
  const std::vector<double> late = y.tolist(), first = early.tolist();
  for (size_t i = 0; i < 32; ++i) {
    const size_t from = 31 - i;
    const bool there = from % 2 == 0;
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(first[4 * i + k], there ? x[4 * from + k] : 0) << i;
      EXPECT_EQ(late[4 * i + k], there ? x[128 + 4 * from + k] : 0) << i;
    }
    for (size_t k = 0; k < 2; ++k) EXPECT_EQ(late[128 + 2 * i + k], there ? x[2 * from + k] : 0);
  }
}

struct Conversions {
  static constexpr int kThreads = 64;
  float* y;  // (threads, 3)
  const float* x;
  __device__ void operator()() const {
    const int i = static_cast<int>(threadIdx.x);
    const uint32_t both = pack_bf16(x[i], -x[i]);
    y[3 * i] = first_of(both);
    y[3 * i + 1] = second_of(both);
    y[3 * i + 2] = exp2_fast(x[i]);
  }
};

TEST_F(CudaMma, RoundsPairsAndRaisesTwo) {
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(0.737f * static_cast<float>(i - 50));
  x[0] = -INFINITY;
  x[1] = -200;
  const Tensor input = on_device(x, f32);
  Tensor y = zeros({64, 3}, {f32, gpu});
  launch("convert", 1, Conversions{y.mutable_data<float>(), input.data<float>()});
  const std::vector<double> got = y.tolist();
  for (size_t i = 0; i < 64; ++i) {
    const float rounded = bfloat16(x[i]);
    EXPECT_EQ(got[3 * i], rounded);
    EXPECT_EQ(got[3 * i + 1], -rounded);
    const double power = std::exp2(double{x[i]});
    EXPECT_NEAR(got[3 * i + 2], power, 3e-7 * power + 1e-38);
  }
}

}  // namespace
}  // namespace ink::cuda
