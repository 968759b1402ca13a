// Products on the processor's tile unit (gemm_amx.h), where it has one: f32's precision, what three
// bf16 cannot hold, edges, layouts, bf16 results, and attention built of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/gemm_amx.h"
#include "autograd/graph.h"
#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/random.h"

namespace ink {
namespace {

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx::available()) GTEST_SKIP() << "this processor has no AMX";
    manual_seed(11);
  }
};

double largest(const Tensor& x) { return max(abs(x.to(f64))).item(); }
double difference(const Tensor& a, const Tensor& b) { return largest(a.to(f64) - b.to(f64)); }

// x with its last two dimensions the other way round in memory.
Tensor turned(const Tensor& x) { return x.transpose(-2, -1).contiguous().transpose(-2, -1); }

TEST_F(Amx, F32IsAsGoodAsF32Arithmetic) {
  const NoGrad no_grad;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{64, 96, 128}, {256, 70, 400}}) {
    const Tensor a = randn({m, k}), b = randn({k, n}), exact = matmul(a.to(f64), b.to(f64));
    Tensor ours = empty({m, n}), plain = zeros({m, n});
    kernel::gemm(ours, a, b, 1, false);
    for (int64_t l = 0; l < k; ++l)  // one rounding a product, one a sum
      plain = plain + a.narrow(1, l, 1) * b.narrow(0, l, 1);
    const Tensor mine_off = ours.to(f64) - exact, theirs_off = plain.to(f64) - exact;
    const double mine = mean(mine_off * mine_off).item(),
                 theirs = mean(theirs_off * theirs_off).item();
    EXPECT_LT(mine, theirs) << m << " " << n << " " << k;
    EXPECT_LT(difference(ours, exact), 2e-7 * std::sqrt(static_cast<double>(k)) * largest(exact));
  }
}

TEST_F(Amx, EveryLayoutAndEdge) {
  const NoGrad no_grad;
  const int64_t sizes[][3] = {{16, 16, 256}, {33, 49, 65}, {100, 2100, 40}, {300, 31, 1100}};
  for (const auto& [m, n, k] : sizes) {
    const Tensor a = randn({m, k}), b = randn({k, n}), c = randn({m, n}), bias = randn({n});
    const Tensor exact = matmul(a.to(f64), b.to(f64));
    const double tolerance = 1e-5 * std::sqrt(static_cast<double>(k));
    for (int way = 0; way < 4; ++way) {
      const Tensor left = way & 1 ? turned(a) : a, right = way & 2 ? turned(b) : b;
      Tensor y = empty({m, n}), sum = c.clone(), shifted = empty({m, n});
      kernel::gemm(y, left, right, 1, false);
      kernel::gemm(sum, left, right, 1, true);
      kernel::gemm_bias(shifted, left, right, bias);
      EXPECT_LT(difference(y, exact), tolerance) << m << " " << n << " " << k << " way " << way;
      EXPECT_LT(difference(sum, exact + c.to(f64)), tolerance);
      EXPECT_LT(difference(shifted, exact + bias.to(f64)), tolerance);
    }
  }
}

TEST_F(Amx, WhatThreeBf16CannotHoldIsComputedOtherwise) {
  const NoGrad no_grad;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool accumulate : {false, true}) {
      for (const bool on_the_left : {false, true}) {
        Tensor a = full({64, 64}, 0.5), b = full({64, 64}, 0.5), c = full({64, 64}, 2);
        (on_the_left ? a : b).mutable_data<float>()[0] = value;  // element (0, 0)
        kernel::gemm(c, a, b, 1, accumulate);
        const float before = accumulate ? 2 : 0;
        for (int64_t i = 0; i < 64; ++i) {
          for (int64_t j = 0; j < 64; ++j) {
            const float got = c.data<float>()[i * 64 + j];
            const bool touched = on_the_left ? i == 0 : j == 0;
            const float expected = before + (touched ? 0.5f * value + 15.75f : 16);
            if (std::isnan(expected)) {
              ASSERT_TRUE(std::isnan(got));
            } else {
              ASSERT_EQ(got, expected) << value << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

TEST_F(Amx, Bf16OperandsAndResults) {
  const NoGrad no_grad;
  const Tensor a = randn({70, 300}).to(bf16), b = randn({300, 90}).to(bf16),
               wide = randn({70, 300});
  const Tensor exact = matmul(a.to(f64), b.to(f64));
  Tensor y = empty({70, 90}), narrow = empty({70, 90}, bf16), mixed = empty({70, 90});
  kernel::gemm(y, a, b, 1, false);
  kernel::gemm(narrow, a, b, 1, false);
  kernel::gemm(mixed, wide, b, 1, false);  // the f32 operand is rounded, too
  EXPECT_LT(difference(y, exact), 1e-5 * largest(exact));
  EXPECT_EQ(difference(narrow, y.to(bf16)), 0);
  EXPECT_LT(difference(mixed, matmul(wide.to(bf16).to(f64), b.to(f64))), 1e-5 * largest(exact));
}

// Grads of q, k and v, packed in one (B, T, 3 C) as a model has them, and the output before them.
Grads attend(const Tensor& packed, int64_t heads, const AttentionOptions& options,
             const Tensor& upstream) {
  const Tensor leaf = packed.detach().requires_grad_();
  std::vector<Tensor> qkv;
  for (const Tensor& x : split(leaf, leaf.size(2) / 3, 2))
    qkv.push_back(x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2));
  const Tensor y = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], options);
  return {y.detach(), grad({y}, {leaf}, {upstream.to(y.dtype())})[0]};
}

TEST_F(Amx, AttentionOfBf16IsThatOfF32RoundedToBf16) {
  for (const int64_t T : {33, 150, 300}) {
    for (const bool causal : {false, true}) {
      const Tensor packed = randn({2, T, 3 * 96}).to(bf16),
                   upstream = randn({2, 2, T, 48}).to(bf16);
      const AttentionOptions options{.is_causal = causal};
      const Grads narrow = attend(packed, 2, options, upstream),
                  wide = attend(packed.to(f32), 2, options, upstream);
      EXPECT_EQ(narrow[0].dtype(), bf16);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_LT(difference(narrow[i], wide[i]), 0.01 * largest(wide[i])) << T << " " << causal;
    }
  }
}

TEST_F(Amx, QueriesThatSeeNothing) {
  const Tensor q = randn({1, 2, 80, 32}).to(bf16).requires_grad_(),
               k = randn({1, 2, 40, 32}).to(bf16).requires_grad_(),
               v = randn({1, 2, 40, 32}).to(bf16).requires_grad_();
  const Tensor y = scaled_dot_product_attention(q, k, v, {.causal_lower_right = true});
  const Grads grads = grad({y}, {q, k, v}, {ones_like(y)});
  EXPECT_EQ(largest(y.narrow(2, 0, 40)), 0);  // query 40 is the first to see a key
  EXPECT_EQ(largest(grads[0].narrow(2, 0, 40)), 0);
  EXPECT_GT(largest(y.narrow(2, 40, 40)), 0);
  for (const Tensor& g : grads) EXPECT_TRUE(std::isfinite(largest(g)));
}

}  // namespace
}  // namespace ink
