// Attention on tensor cores: bf16 on the device against f32 on the CPU, on the same numbers. Runs
// where there is a device: a GPU, or the emulated one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/memory/device_backend.h"
#include "autograd/random/generator.h"
#include "autograd/replay.h"
#include "cuda/attention/suited.h"

namespace ink {
namespace {

constexpr Device gpu{Device::CUDA, 0};

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    manual_seed(1);
  }
  const ContextGuard guard_;
};

// Sizes: batch, heads of queries, of keys; queries, keys; elements of a key, of a value.
struct Problem {
  int64_t B, H, H_kv, T, S, d, dv;
  AttentionOptions options = {};
  uint64_t first_row = 0;

  std::string name() const {
    std::ostringstream text;
    text << "B " << B << ", H " << H << "/" << H_kv << ", T " << T << ", S " << S << ", d " << d
         << "/" << dv << (options.is_causal ? ", upper left" : "")
         << (options.causal_lower_right ? ", lower right" : "") << ", dropout " << options.dropout_p
         << ", window " << options.window;
    if (options.attn_mask.defined())
      text << ", mask " << options.attn_mask.shape() << " " << options.attn_mask.dtype();
    return text.str();
  }
};

// out and the gradients of q, k and v.
using Results = std::vector<Tensor>;

Results run(const Problem& problem, const std::vector<Tensor>& inputs, const Tensor& upstream) {
  const ContextGuard same_mask;
  context().random = {
      .seed = 5, .step = 3, .micro_batch = 1, .call = 2, .first_row = problem.first_row};
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) leaves.push_back(x.detach().requires_grad_());
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], problem.options);
  Results results = grad({out}, leaves, {upstream});
  results.insert(results.begin(), out.detach());
  return results;
}

bool on_tensor_cores(const Tensor& x, const Tensor& mask = {}) {
  return cuda::suits_attention_mma(mask, {1, 0, 0, {}}, {&x.array()});
}

// Heads side by side in each row, (B, T, H d), seen as (B, H, T, d): as linear layers leave them.
Tensor heads(int64_t B, int64_t H, int64_t T, int64_t d) {
  return randn({B, T, H, d}).to(bf16).transpose(1, 2);
}

// At every element within 2e-2 of the largest expected, on average within 2e-3.
void expect_close(const Results& got, const Results& expected) {
  constexpr const char* kNames[] = {"out", "dq", "dk", "dv"};
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(got[r].shape(), expected[r].shape());
    ASSERT_EQ(got[r].device(), gpu);
    const std::vector<double> a = got[r].tolist(), b = expected[r].tolist();
    double largest = 0, worst = 0, sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double error = std::abs(a[i] - b[i]);
      ASSERT_FALSE(std::isnan(error)) << kNames[r] << " " << i << ": " << a[i] << ", " << b[i];
      largest = std::max(largest, std::abs(b[i]));
      worst = std::max(worst, error);
      sum += error;
    }
    // Where the softmax is over one key, q and k have no gradient but rounding errors.
    const double scale = std::max(largest, 0.1);
    EXPECT_LE(worst, 2e-2 * scale) << kNames[r];
    EXPECT_LE(sum, 2e-3 * scale * static_cast<double>(a.size())) << kNames[r];
  }
}

void expect_same_bits(const Results& a, const Results& b) {
  for (size_t r = 0; r < a.size(); ++r) EXPECT_EQ(a[r].tolist(), b[r].tolist()) << r;
}

// On the device, with the same strides if it is a transposed matrix.
Tensor moved_as_it_lies(const Tensor& mask) {
  const bool turned = mask.dim() == 2 && !mask.is_contiguous();
  return turned ? mask.T().contiguous().to(gpu).T() : mask.to(gpu);
}

void check(const Problem& problem) {
  SCOPED_TRACE(problem.name());
  const auto& [B, H, H_kv, T, S, d, dv, options, first_row] = problem;
  std::vector<Tensor> inputs{heads(B, H, T, d), heads(B, H_kv, S, d), heads(B, H_kv, S, dv)};
  Tensor upstream = heads(B, H, T, dv);
  Problem on_gpu = problem;
  if (options.attn_mask.defined()) on_gpu.options.attn_mask = moved_as_it_lies(options.attn_mask);
  std::vector<Tensor> moved, wide;
  for (Tensor x : inputs) {
    wide.push_back(x.to(f32));
    moved.push_back(x.transpose(1, 2).contiguous().to(gpu).transpose(1, 2));
    EXPECT_TRUE(on_tensor_cores(moved.back(), on_gpu.options.attn_mask));
  }
  const Results expected = run(problem, wide, upstream.to(f32));
  const Results got = run(on_gpu, moved, upstream.to(gpu));
  expect_close(got, expected);
  expect_same_bits(run(on_gpu, moved, upstream.to(gpu)), got);
}

TEST_F(CudaAttention, OfAnyLength) {
  for (const int64_t T : {1, 63, 64, 65, 130, 200}) check({1, 1, 1, T, T, 64, 64, {}});
}
TEST_F(CudaAttention, Causal) {
  for (const int64_t T : {1, 63, 64, 65, 130, 200})
    check({1, 1, 1, T, T, 64, 64, {.is_causal = true}});
}
TEST_F(CudaAttention, OfEveryHeadSize) {
  for (const int64_t d : {8, 32, 48, 96, 128}) check({1, 2, 2, 70, 70, d, d, {.is_causal = true}});
  check({1, 1, 1, 130, 130, 128, 128});
  check({1, 1, 1, 70, 70, 64, 40});
  check({1, 1, 1, 70, 70, 24, 128, {.scale = 0.3}});
}
TEST_F(CudaAttention, QueriesAndKeysOfDifferentLength) {
  for (const auto& [T, S] : {std::pair(40, 150), {150, 40}, {1, 129}, {129, 1}, {70, 300}}) {
    for (const int64_t d : {32, 64}) {
      check({1, 1, 1, T, S, d, d, {.is_causal = true}});
      check({1, 1, 1, T, S, d, d, {.causal_lower_right = true}});
      check({1, 1, 1, T, S, d, d, {}});
    }
  }
}
// So that the diagonal crosses tiles and the rows of warps at every kind of place.
TEST_F(CudaAttention, DiagonalsAnywhere) {
  for (const int64_t diagonal : {-33, -17, 1, 15, 17, 30, 31, 47, 62}) {
    check({1, 1, 1, 70, 70 + diagonal, 32, 32, {.causal_lower_right = true}});
    check({1, 1, 1, 140, 140 + 2 * diagonal, 64, 64, {.causal_lower_right = true}});
  }
}
// With its edge within tiles and between them, before the first key and after the last.
TEST_F(CudaAttention, Windows) {
  int turn = 0;
  for (const int64_t window : {1, 7, 64, 65, 200, 1000}) {
    for (const auto& [T, S] : {std::pair(64, 64), {200, 200}, {70, 300}, {129, 60}, {1, 300}}) {
      // Heads of both sizes, by turns: each window meets both, and so does each pair of lengths.
      const int64_t d = turn % 2 ? 32 : 64, other = 96 - d;
      check({1, 2, 1, T, S, d, d, {.causal_lower_right = true, .window = window}});
      check({1, 1, 1, T, S, other, other, {.is_causal = true, .window = window}});
      ++turn;
    }
    check({1, 2, 1, 140, 200, 128, 128, {.causal_lower_right = true, .window = window}});
    if (window == 1) continue;  // of q and k only the rounding of out would be compared
    for (const int64_t d : {32, 64})
      check({1,
             2,
             1,
             130,
             200,
             d,
             d,
             {.dropout_p = 0.2, .causal_lower_right = true, .window = window}});
  }
}
// Not even where a hidden NaN reaches all that read its tile.
TEST_F(CudaAttention, TilesOutsideOfTheWindowAreNotRead) {
  const int64_t T = 500, early = 64, late = 400;
  for (const int64_t d : {32, 64, 128}) {
    const Problem problem{1, 1, 1, T, T, d, d, {.is_causal = true, .window = 20}};
    const Tensor q = heads(1, 1, T, d), k = heads(1, 1, T, d), dout = heads(1, 1, T, d);
    Tensor bad_k = k.clone(), bad_dout = dout.clone();
    bad_k.narrow(2, 0, early).fill_(NAN);
    bad_dout.narrow(2, late, T - late).fill_(NAN);
    const auto parts = [&](const Tensor& keys, const Tensor& upstream, int64_t first, int64_t n) {
      Results all = run(problem, {q.to(gpu), keys.to(gpu), keys.to(gpu)}, upstream.to(gpu));
      for (Tensor& x : all) x = x.narrow(2, first, n);
      return all;
    };
    expect_same_bits(parts(bad_k, dout, late, T - late), parts(k, dout, late, T - late));
    expect_same_bits(parts(k, bad_dout, 0, early), parts(k, dout, 0, early));
  }
}
TEST_F(CudaAttention, GroupsOfHeads) {
  check({2, 4, 2, 70, 90, 32, 32, {.causal_lower_right = true}});
  check({1, 3, 1, 65, 65, 64, 64, {.dropout_p = 0.2, .is_causal = true}});
  check({2, 4, 2, 130, 200, 64, 64, {.causal_lower_right = true}});
  check({1, 4, 1, 65, 140, 128, 128, {.dropout_p = 0.1, .causal_lower_right = true}});
  check({2, 35, 35, 3, 3, 32, 32});  // more than a bunch of heads
}
// Many for each block that stays until all is done, an odd and an even number of a head's.
TEST_F(CudaAttention, ManyTiles) {
  check({1, 3, 3, 300, 300, 64, 64, {.is_causal = true}});
  check({2, 5, 5, 200, 200, 64, 64, {.dropout_p = 0.2, .is_causal = true}});
  check({1, 5, 5, 260, 260, 96, 96, {.is_causal = true}});
}
// With rows of the weights that start at a multiple of four elements, and not.
TEST_F(CudaAttention, DropsWhatTheCpuDrops) {
  for (const int64_t S : {128, 131}) {
    for (const int64_t d : {32, 64, 128})
      check({1, 2, 2, 70, S, d, d, {.dropout_p = 0.3, .causal_lower_right = d != 32}});
  }
  check({1, 1, 1, 35, 36, 32, 32, {.dropout_p = 0.3}, 3});
  check({1, 1, 1, 35, 37, 32, 32, {.dropout_p = 0.3}, 3});
  for (const int64_t d : {32, 128}) check({1, 1, 1, 35, 35, d, d, {.dropout_p = 1}});
}

Tensor some(const Shape& shape) { return rand(shape) < 0.6; }
Tensor bias(const Shape& shape) {
  return masked_fill(randn(shape) * 2.0, logical_not(some(shape)), -INFINITY);
}

// Of the queries and keys of each head, of each batch, of all; along the keys alone, along the
// queries alone; transposed.
TEST_F(CudaAttention, Masked) {
  const int64_t B = 2, H = 2, T = 70, S = 90, d = 32;
  for (const Shape& shape :
       {Shape{T, S}, Shape{S}, Shape{B, 1, 1, S}, Shape{B, H, T, S}, Shape{H, T, 1}, Shape{1, 1}}) {
    for (const Tensor& mask : {some(shape), bias(shape)}) {
      if (shape.numel() > 1) check({B, H, H, T, S, d, d, {.attn_mask = mask}});
    }
    check({B, H, H, T, S, d, d, {.attn_mask = randn(shape)}});
  }
  for (const Tensor& mask : {some({S, T}).T(), bias({S, T}).T()})
    check({B, H, H, T, S, d, d, {.attn_mask = mask}});
}
TEST_F(CudaAttention, MaskedOfEverySize) {
  for (const int64_t d : {24, 64, 128}) {
    for (const double dropout : {0.0, 0.3}) {
      check({1, 1, 1, 140, 70, d, d, {.attn_mask = some({140, 70}), .dropout_p = dropout}});
      check({1,
             2,
             1,
             65,
             131,
             d,
             d,
             {.attn_mask = bias({65, 131}), .dropout_p = dropout, .causal_lower_right = true}});
      check({1,
             1,
             1,
             90,
             90,
             d,
             d,
             {.attn_mask = bias({90, 90}), .dropout_p = dropout, .is_causal = true, .scale = 0.2}});
    }
  }
}
// A window, padding, and numbers so low that they are as good as -inf where others are not.
TEST_F(CudaAttention, MaskedAsModelsDo) {
  const int64_t T = 150;
  const Tensor i = arange(T).view({T, 1}), j = arange(T);
  const Tensor far = i - j > 20.0;
  check({1, 2, 2, T, T, 64, 64, {.attn_mask = logical_not(far), .is_causal = true}});
  for (const double low : {-1e4, -1e9, -3.4e38}) {
    check({1, 2, 2, T, T, 64, 64, {.attn_mask = masked_fill(zeros({T, T}), far, low)}});
    check({2, 1, 1, T, T, 32, 32, {.attn_mask = masked_fill(zeros({T}), j > 99.0, low)}});
  }
}
// Of a row with nothing but lowest numbers the weights are what they would be without.
TEST_F(CudaAttention, MasksMayBeLowEverywhere) {
  const Tensor q = heads(1, 1, 40, 32).to(gpu);
  const auto attend = [&](double low) {
    return scaled_dot_product_attention(
        q, q, q, {.attn_mask = zeros({40, 40}, {f32, gpu}) + low, .scale = 1e-4});
  };
  const std::vector<double> expected = attend(0).tolist();
  for (const double low : {-1e4, -1e9, -3.4e38}) {
    const std::vector<double> got = attend(low).tolist();
    for (size_t e = 0; e < got.size(); ++e) EXPECT_NEAR(got[e], expected[e], 0.01) << low;
  }
}
TEST_F(CudaAttention, AMaskWithAGradientHasOne) {
  const Tensor q = heads(1, 2, 40, 32), mask = randn({40, 40});
  const auto dmask = [&](const Tensor& x, const Tensor& m) {
    const Tensor leaf = m.detach().requires_grad_();
    const Tensor out = scaled_dot_product_attention(x, x, x, {.attn_mask = leaf});
    return grad({out}, {leaf}, {x})[0].tolist();
  };
  const auto got = dmask(q.to(gpu), mask.to(gpu)), expected = dmask(q.to(f32), mask);
  const double largest = *std::max_element(expected.begin(), expected.end());
  for (size_t e = 0; e < got.size(); ++e) EXPECT_NEAR(got[e], expected[e], 0.03 * largest);
}

TEST_F(CudaAttention, RowsThatSeeNothingAreZero) {
  const Problem problem{1, 1, 1, 130, 60, 64, 64, {.causal_lower_right = true}};
  check(problem);
  const Tensor q = heads(1, 1, 130, 64).to(gpu), k = heads(1, 1, 60, 64).to(gpu);
  const Results got = run(problem, {q, k, k}, q);
  for (size_t r : {0, 1}) EXPECT_EQ(sum(abs(got[r].narrow(2, 0, 70))).item(), 0);
}

// What lies past what a tile of queries may see never matters, be it NaN.
TEST_F(CudaAttention, WhatIsMaskedNeverMatters) {
  const Problem problem{1, 1, 1, 130, 130, 64, 64, {.is_causal = true}};
  const Tensor q = heads(1, 1, 130, 64), k = heads(1, 1, 130, 64), v = heads(1, 1, 130, 64);
  const Tensor upstream = cat({heads(1, 1, 100, 64), zeros({1, 1, 30, 64}, bf16)}, 2);
  const auto first = [&](const Tensor& keys, const Tensor& values) {
    const Results all = run(problem, {q.to(gpu), keys.to(gpu), values.to(gpu)}, upstream.to(gpu));
    return Results{all[0].narrow(2, 0, 100), all[1].narrow(2, 0, 100)};
  };
  Tensor bad_k = k.clone(), bad_v = v.clone();
  bad_k.narrow(2, 128, 2).fill_(NAN);
  bad_v.narrow(2, 128, 2).fill_(INFINITY);
  expect_same_bits(first(bad_k, bad_v), first(k, v));
}

// The same of a mask, by the general kernels and on tensor cores.
TEST_F(CudaAttention, KeysThatNoQuerySeesNeverMatter) {
  const int64_t S = 150, hidden = 70;
  const Tensor allowed = arange(static_cast<double>(S)) < static_cast<double>(hidden);
  const Tensor bias = masked_fill(randn({S}), logical_not(allowed), -INFINITY);
  for (const auto& [mask, dtype] :
       {std::pair(allowed, f32), {bias, f32}, {allowed, bf16}, {bias, bf16}}) {
    const Problem problem{1, 1, 1, 40, S, 16, 16, {.attn_mask = mask.to(gpu)}};
    const Tensor q = randn({1, 1, 40, 16}, dtype), k = randn({1, 1, S, 16}, dtype),
                 v = randn({1, 1, S, 16}, dtype);
    EXPECT_EQ(on_tensor_cores(q.to(gpu), mask), dtype == bf16);
    Tensor bad_k = k.clone(), bad_v = v.clone();
    bad_k.narrow(2, hidden, S - hidden).fill_(NAN);
    bad_v.narrow(2, hidden, S - hidden).fill_(-INFINITY);
    const auto attend = [&](const Tensor& keys, const Tensor& values) {
      return run(problem, {q.to(gpu), keys.to(gpu), values.to(gpu)}, q.to(gpu));
    };
    expect_same_bits(attend(bad_k, bad_v), attend(k, v));
  }
}

// Equal scores, so large that a rounding of them moves weights. What was summed before must keep
// its weight, tile by tile.
TEST_F(CudaAttention, EqualKeysWeighTheSame) {
  const NoGrad no_grad;
  const auto of = [](int64_t rows, double x) { return full({1, 1, rows, 64}, x, f32).to(bf16); };
  const Tensor v = cat({of(1024, 1), of(1024, -1)}, 2).to(gpu);
  for (const double x : {9.5, 7.25, 5.125}) {
    const Tensor q = of(8, x).to(gpu), k = of(2048, x).to(gpu);
    EXPECT_EQ(abs(scaled_dot_product_attention(q, k, v)).max().item(), 0) << x;
  }
}

// q, k and v inside (B, T, 3 C), and their gradients in one buffer of that shape.
TEST_F(CudaAttention, ReadsAndWritesPackedHeadsInPlace) {
  const int64_t B = 2, T = 65, H = 2, d = 32;
  const Tensor packed = randn({B, T, 3 * H * d}).to(bf16), upstream = heads(B, H, T, d);
  const auto attend = [&](const Tensor& qkv, const Tensor& dout) {
    const Tensor leaf = qkv.detach().requires_grad_();
    std::vector<Tensor> parts;
    for (const Tensor& x : split(leaf, H * d, -1))
      parts.push_back(x.view({B, T, H, d}).transpose(1, 2));
    EXPECT_EQ(on_tensor_cores(parts[1]), qkv.dtype() == bf16);
    const Tensor out =
        scaled_dot_product_attention(parts[0], parts[1], parts[2], {.is_causal = true});
    const Tensor dqkv = grad({out}, {leaf}, {dout})[0];
    Results results{out.detach()};
    for (int64_t n = 0; n < 3; ++n) results.push_back(dqkv.narrow(2, n * H * d, H * d));
    return results;
  };
  expect_close(attend(packed.to(gpu), upstream.to(gpu)), attend(packed.to(f32), upstream.to(f32)));
}

// ---- few queries, whose keys are shared out

// out, and gradients that follow from what the softmax is said to have been.
void check_few(const Problem& problem, DType dtype, double tolerance) {
  SCOPED_TRACE(problem.name() + std::string(" ") + name_of(dtype));
  const auto& [B, H, H_kv, T, S, d, dv, options, first_row] = problem;
  const std::vector<Tensor> inputs{randn({B, H, T, d}, dtype), randn({B, H_kv, S, d}, dtype),
                                   randn({B, H_kv, S, dv}, dtype)};
  const Tensor upstream = randn({B, H, T, dv}, dtype);
  Problem on_gpu = problem;
  if (options.attn_mask.defined()) on_gpu.options.attn_mask = options.attn_mask.to(gpu);
  std::vector<Tensor> moved;
  for (const Tensor& x : inputs) moved.push_back(x.to(gpu));
  const Results expected = run(problem, inputs, upstream),
                got = run(on_gpu, moved, upstream.to(gpu));
  for (size_t r = 0; r < got.size(); ++r) {
    const std::vector<double> a = got[r].tolist(), b = expected[r].tolist();
    double largest = 0.1;  // over one key, q and k have no gradient but rounding errors
    for (const double x : b) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], tolerance * largest) << "result " << r << ", element " << i;
  }
  expect_same_bits(run(on_gpu, moved, upstream.to(gpu)), got);
}

TEST_F(CudaAttention, FewQueries) {
  for (const int64_t S : {5, 64, 65, 127, 128, 129, 300, 1025}) {
    check_few({2, 3, 3, 1, S, 64, 64}, f32, 1e-5);
    check_few({1, 2, 1, 4, S, 32, 40, {.causal_lower_right = true}}, f32, 1e-5);
    check_few({1, 2, 2, 3, S, 16, 16, {.is_causal = true}}, f64, 1e-10);
  }
  for (const int64_t d : {1, 7, 64, 100, 128, 200, 256}) {
    check_few({1, 2, 2, 2, 260, d, d}, f32, 1e-5);
    check_few({1, 1, 1, 1, 260, d, 257 - d}, f64, 1e-10);
    check_few({1, 2, 2, 1, 260, d, d}, bf16, 2e-2);
  }
  for (const int64_t d : {32, 96, 160}) check_few({1, 1, 1, 1, 260, d, 192 - d}, f32, 1e-5);
  check_few({1, 1, 1, 1, 260, 257, 257}, f32, 1e-5);  // too wide for it
  check_few({1, 1, 1, 5, 260, 32, 32}, f32, 1e-5);    // too many
}

// More than there are cells in which a launch counts its blocks.
TEST_F(CudaAttention, FewQueriesOfManyHeads) {
  const Tensor q = randn({1030, 1, 4, 8}), kv = randn({1030, 1, 129, 8}), on_gpu = kv.to(gpu);
  const Tensor expected = scaled_dot_product_attention(q, kv, kv),
               got = scaled_dot_product_attention(q.to(gpu), on_gpu, on_gpu).to(Device());
  EXPECT_LT(abs(got - expected).max().item(), 1e-5);
}

TEST_F(CudaAttention, FewQueriesInAWindow) {
  for (const int64_t window : {1, 7, 64, 65, 200, 1000}) {
    for (const int64_t T : {1, 4})
      check_few({1, 2, 1, T, 700, 32, 32, {.causal_lower_right = true, .window = window}}, f32,
                1e-5);
    if (window == 1) continue;  // rounding errors alone
    check_few({1, 1, 1, 70, 300, 32, 40, {.causal_lower_right = true, .window = window}}, f32,
              1e-5);  // the general kernels
  }
}
TEST_F(CudaAttention, FewQueriesMasked) {
  const int64_t T = 2, S = 300;
  for (const Shape& shape : {Shape{T, S}, Shape{S}, Shape{2, 1, 1, S}}) {
    for (const Tensor& mask : {some(shape), bias(shape)})
      check_few({2, 2, 1, T, S, 32, 32, {.attn_mask = mask, .causal_lower_right = true}}, f32,
                1e-5);
  }
  const Tensor ends = arange(static_cast<double>(S)) < 70.0;  // parts that see nothing
  check_few({1, 1, 1, 1, S, 32, 32, {.attn_mask = ends}}, f32, 1e-5);
  check_few({1, 1, 1, 1, S, 32, 32, {.attn_mask = logical_not(ends)}}, f32, 1e-5);
  check_few({1, 1, 1, 4, 2, 32, 32, {.causal_lower_right = true}}, f32, 1e-5);  // rows, too

  const Problem problem{1, 1, 1, 1, S, 32, 32, {.attn_mask = ends.to(gpu)}};
  const Tensor q = randn({1, 1, 1, 32}), k = randn({1, 1, S, 32}), v = randn({1, 1, S, 32});
  Tensor bad_k = k.clone(), bad_v = v.clone();
  bad_k.narrow(2, 70, S - 70).fill_(NAN);
  bad_v.narrow(2, 70, S - 70).fill_(INFINITY);
  const auto attend = [&](const Tensor& keys, const Tensor& values) {
    return run(problem, {q.to(gpu), keys.to(gpu), values.to(gpu)}, q.to(gpu));
  };
  expect_same_bits(attend(bad_k, bad_v), attend(k, v));
}

// As a cache holds them: heads of a row side by side, and room behind the last.
TEST_F(CudaAttention, FewQueriesReadACacheInPlace) {
  const Tensor cache = randn({2, 200, 3, 24}), x = randn({2, 1, 3, 24});
  for (const int64_t seen : {130, 77}) {
    const auto attend = [&](Device device) {
      const Tensor keys = cache.to(device).narrow(1, 0, seen).transpose(1, 2);
      return scaled_dot_product_attention(x.to(device).transpose(1, 2), keys, keys).tolist();
    };
    const auto got = attend(gpu), expected = attend(cpu_device);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
  }
}

// Rows that are not aligned to 16 bytes are the general kernels'.
TEST_F(CudaAttention, FallsBackWhereRowsAreNotAligned) {
  const Tensor x = randn({1, 2, 70, 36}).to(bf16);
  const Tensor shifted = x.to(gpu).narrow(3, 2, 32);
  EXPECT_FALSE(on_tensor_cores(shifted));
  const Problem problem{1, 2, 2, 70, 70, 32, 32, {.is_causal = true}};
  const Tensor wide = x.to(f32).narrow(3, 2, 32), upstream = heads(1, 2, 70, 32);
  expect_close(run(problem, {shifted, shifted, shifted}, upstream.to(gpu)),
               run(problem, {wide, wide, wide}, upstream.to(f32)));
}

// A capture draws the masks of the step that it is replayed for.
TEST_F(CudaAttention, ARecordFollowsTheStep) {
  context().observers.clear();  // nothing is captured while one looks on
  const Tensor q = heads(1, 1, 40, 32).to(gpu);
  for (const DType dtype : {bf16, f32}) {
    const Tensor x = q.to(dtype);
    Tensor out = zeros({1, 1, 40, 32}, {dtype, gpu});
    const auto work = [&] {
      const NoGrad none;
      const ContextGuard same_call;
      out.copy_(scaled_dot_product_attention(x, x, x, {.dropout_p = 0.5}));
    };
    Replay replay(gpu, {out});
    for (uint64_t step = 0; step < 6; ++step) {
      context().random.step = step;
      replay.run(work);
      const std::vector<double> replayed = out.tolist();
      work();
      EXPECT_EQ(replayed, out.tolist()) << "step " << step;
    }
    EXPECT_TRUE(replay.captured());
  }
}

}  // namespace
}  // namespace ink
