// Matrix products on the processor's units (autograd/gemm/units.h), those that this processor has:
// f32's precision, edges, layouts, bf16, infinities and NaN, which unit is chosen, and attention of
// bf16 built of them.
#include "autograd/gemm/units.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/gemm.h"
#include "autograd/random/generator.h"
#include "tests/autograd/emulated_tiles.h"
#include "tests/support/run_program.h"

namespace ink {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

double largest(const Tensor& x) { return max(abs(x.to(f64))).item(); }
double difference(const Tensor& a, const Tensor& b) { return largest(a.to(f64) - b.to(f64)); }

// x with its last two dimensions the other way round in memory.
Tensor turned(const Tensor& x) { return x.transpose(-2, -1).contiguous().transpose(-2, -1); }

// a b, by none of the units.
Tensor by_definition(const Tensor& a, const Tensor& b) {
  Tensor sum = zeros({a.size(0), b.size(1)}, a.options());
  for (int64_t l = 0; l < a.size(1); ++l) sum += a.narrow(1, l, 1) * b.narrow(0, l, 1);
  return sum;
}

// x (rows, cols) within a matrix of 7.
Tensor framed(const Tensor& x) {
  Tensor inside = full({x.size(0) + 3, x.size(1) + 5}, 7, x.options())
                      .narrow(0, 1, x.size(0))
                      .narrow(1, 2, x.size(1));
  inside.copy_(x);
  return inside;
}

class GemmUnits : public testing::TestWithParam<const GemmUnit*> {
 protected:
  const GemmUnit* unit = GetParam();

  void SetUp() override { manual_seed(11); }

  // c = a b + bias, or c += a b.
  void multiply(Tensor& c, const Tensor& a, const Tensor& b, bool accumulate = false,
                const Tensor& bias = Tensor()) const {
    const int64_t m = c.size(0), n = c.size(1), k = a.size(1);
    const GemmOperand left = operand_of(a), right = operand_of(b);
    const void* row = bias.defined() ? operand_of(bias.view({1, n})).data : nullptr;
    const GemmProduct product{m, n, k, left, right, result_of(c), accumulate, row};
    Tensor scratch = empty({unit->scratch_bytes(product.dtype(), m, n, k) / 4 + 1});
    unit->product(product, scratch.mutable_data<float>());
  }
};

// Those that this processor has, and tiles even if it has none.
std::vector<const GemmUnit*> tested_units() {
  std::vector<const GemmUnit*> units = gemm_units();
  if (emulated_tiles_unit() != nullptr) units.push_back(emulated_tiles_unit());
  return units;
}
INSTANTIATE_TEST_SUITE_P(Each, GemmUnits, testing::ValuesIn(tested_units()),
                         [](const auto& row) { return row.param->name; });

TEST_P(GemmUnits, F32IsAsGoodAsF32Arithmetic) {
  if (!unit->multiplies(f32)) GTEST_SKIP() << "it has no products of f32";
  const NoGrad no_grad;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{64, 96, 128}, {256, 70, 400}}) {
    const Tensor a = randn({m, k}), b = randn({k, n}), exact = matmul(a.to(f64), b.to(f64));
    Tensor ours = empty({m, n}), plain = zeros({m, n});
    multiply(ours, a, b);
    for (int64_t l = 0; l < k; ++l)  // one rounding a product, one a sum
      plain = plain + a.narrow(1, l, 1) * b.narrow(0, l, 1);
    const Tensor mine_off = ours.to(f64) - exact, theirs_off = plain.to(f64) - exact;
    const double mine = mean(mine_off * mine_off).item(),
                 theirs = mean(theirs_off * theirs_off).item();
    EXPECT_LE(mine, 1.01 * theirs) << m << " " << n << " " << k;
    EXPECT_LT(difference(ours, exact), 2e-7 * std::sqrt(static_cast<double>(k)) * largest(exact));
  }
}

// Every height of a block, both widths, one part of the inner dimension and several, and what lies
// around the result stays as it is.
TEST_P(GemmUnits, EveryLayoutAndEdge) {
  const NoGrad no_grad;
  // In a frame, rows of 1019 are 1024 apart, and displace each other in a cache.
  std::vector<std::array<int64_t, 3>> sizes{
      {33, 49, 65}, {100, 2100, 40}, {300, 31, 1100}, {33, 20, 1019}};
  for (int64_t m = 1; m < 33; ++m) sizes.push_back({m, 2 * m + 1, 3 * m + 7});
  for (const DType dtype : {f32, f64}) {
    if (!unit->multiplies(dtype)) continue;
    for (const auto& [m, n, k] : sizes) {
      const Tensor a = randn({m, k}, dtype), b = randn({k, n}, dtype), c = randn({m, n}, dtype),
                   bias = randn({n}, dtype), exact = by_definition(a.to(f64), b.to(f64));
      const double tolerance = (dtype == f64 ? 2e-14 : 1e-5) * std::sqrt(static_cast<double>(k));
      for (int way = 0; way < 4; ++way) {
        const Tensor left = way & 1 ? turned(a) : framed(a),
                     right = way & 2 ? turned(b) : framed(b);
        Tensor y = empty({m, n}, dtype), sum = c.clone(), frame = full({m + 2, n + 2}, 7, dtype),
               shifted = frame.narrow(0, 1, m).narrow(1, 1, n);
        multiply(y, left, right);
        multiply(sum, left, right, true);
        multiply(shifted, left, right, false, bias);
        EXPECT_LT(difference(y, exact), tolerance) << m << " " << n << " " << k << " way " << way;
        EXPECT_LT(difference(sum, exact + c.to(f64)), tolerance);
        EXPECT_LT(difference(shifted, exact + bias.to(f64)), tolerance);
        shifted.copy_(full({m, n}, 7));
        EXPECT_EQ(difference(frame, full_like(frame, 7)), 0) << m << " " << n << " " << k;
      }
    }
  }
}

TEST_P(GemmUnits, Bf16OperandsAndResults) {
  if (!unit->multiplies(bf16)) GTEST_SKIP() << "it has no products of bf16";
  const NoGrad no_grad;
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{70, 90, 300}, {29, 33, 131}, {16, 65, 1024}}) {
    const Tensor a = randn({m, k}).to(bf16), b = randn({k, n}).to(bf16), wide = randn({m, k});
    const Tensor exact = matmul(a.to(f64), b.to(f64)), rounded = wide.to(bf16);
    const double tolerance = 1e-5 * largest(exact);
    for (int way = 0; way < 4; ++way) {
      const auto left = [&](const Tensor& x) { return way & 1 ? turned(x) : framed(x); };
      const Tensor right = way & 2 ? turned(b) : framed(b);
      Tensor y = empty({m, n}), narrow = empty({m, n}, bf16), mixed = empty({m, n}),
             swapped = empty({n, m}), sum = y.clone();
      sum.copy_(exact.to(f32));
      multiply(y, left(a), right);
      multiply(sum, left(a), right, true);
      multiply(narrow, left(a), right);
      multiply(mixed, left(wide), right);  // the f32 operand may be rounded, too
      multiply(swapped, right.transpose(0, 1), left(wide).transpose(0, 1));
      EXPECT_LT(difference(y, exact), tolerance) << m << " " << n << " " << k << " way " << way;
      EXPECT_LT(difference(sum, 2 * exact), 2 * tolerance);
      EXPECT_LT(difference(narrow, exact), largest(exact) / 256);
      if (k <= 512) {  // one part of the inner dimension
        EXPECT_EQ(difference(narrow, y.to(bf16)), 0);
      }
      const bool keeps = difference(mixed, matmul(wide.to(f64), b.to(f64))) < tolerance;
      EXPECT_TRUE(keeps || difference(mixed, matmul(rounded.to(f64), b.to(f64))) < tolerance);
      EXPECT_LT(difference(swapped, mixed.transpose(0, 1)), tolerance);
    }
  }
}

// What a result of bf16 rounds to: halves to even, NaN stays NaN.
TEST_P(GemmUnits, ResultsRoundToBf16AsConversionDoes) {
  if (!unit->multiplies(bf16)) GTEST_SKIP() << "it has no products of bf16";
  const NoGrad no_grad;
  Tensor eye = zeros({16, 16}, bf16), values = empty({16, 16});
  for (int64_t i = 0; i < 16; ++i) eye.mutable_data<bfloat16>()[17 * i] = 1.0f;
  const auto set = [&](const std::vector<float>& some) {
    for (size_t i = 0; i < 256; ++i) values.mutable_data<float>()[i] = some[i % some.size()];
  };
  set({1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -1.0f - 0x1.8p-8f, 3.4e38f, 1e-30f, 0.1f, -0.0f});
  Tensor bias = values.narrow(0, 0, 1).contiguous().view({16}), y = empty({16, 16}, bf16);
  multiply(y, zeros({16, 16}, bf16), eye, false, bias);
  for (int64_t j = 0; j < 16; ++j)
    EXPECT_EQ(static_cast<float>(y.data<bfloat16>()[j]),
              static_cast<float>(bfloat16(bias.data<float>()[j])));
  bias.mutable_data<float>()[3] = kNaN;
  multiply(y, zeros({16, 16}, bf16), eye, false, bias);
  EXPECT_TRUE(std::isnan(static_cast<float>(y.data<bfloat16>()[3])));
}

TEST_P(GemmUnits, RoundsARow) {
  if (unit->round_row == nullptr) GTEST_SKIP() << "it multiplies no bf16, or converts it";
  const Tensor x = randn({37});
  Tensor y = full({38}, 7, bf16);
  unit->round_row(y.mutable_data<bfloat16>(), x.data<float>(), 37, 0.5f);
  EXPECT_EQ(difference(y.narrow(0, 0, 37), (0.5 * x).to(bf16)), 0);
  EXPECT_EQ(static_cast<float>(y.data<bfloat16>()[37]), 7);
}

// Values that f32 products carry on.
TEST_P(GemmUnits, InfinityAndNaN) {
  if (!unit->multiplies(f32)) GTEST_SKIP() << "it has no products of f32";
  const NoGrad no_grad;
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::max(), kNaN}) {
    for (const bool accumulate : {false, true}) {
      for (const bool on_the_left : {false, true}) {
        Tensor a = full({64, 64}, 0.5), b = full({64, 64}, 0.5), c = full({64, 64}, 2);
        (on_the_left ? a : b).mutable_data<float>()[0] = value;  // element (0, 0)
        multiply(c, a, b, accumulate);
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

// So small that AMX takes parts of it for 0: in all rows and columns, in every other one, and in a
// single row and column of several blocks and parts of the inner dimension. An element of the
// result is as good as the product of its row's and its column's largest elements, in f32, denormal
// or not.
TEST_P(GemmUnits, SmallNumbers) {
  if (!unit->multiplies(f32)) GTEST_SKIP() << "it has no products of f32";
  const NoGrad no_grad;
#ifdef NDEBUG
  constexpr int64_t kEvery[] = {1, 2, 1000};
#else
  constexpr int64_t kEvery[] = {1, 2};  // the large ones take half a minute
#endif
  for (const int64_t every : kEvery) {
    for (const auto& [left, right] : {std::array{1e-36, 1.0},
                                      {1.0, 1e-34},
                                      {1e-17, 1e-18},
                                      {3e-19, 3e-19},
                                      {1e-36, 1e30},
                                      {1e-31, 1e-2},
                                      {1e-40, 1.0},
                                      {1e-22, 1e-22}}) {
      for (int way = 0; way < 8; ++way) {
        const bool large = every == 1000;
        const int64_t m = large ? 300 : 70, n = large ? 2100 : 50, k = large ? 600 : 90;
        if (large && way % 4 != way / 2) continue;  // four of the eight, because they take long
        const Tensor rows = full({m, 1}, 1, f64), cols = full({1, n}, 1, f64);
        for (int64_t i = every / 4; i < m; i += every) rows.index({i}) = left;
        for (int64_t j = every / 4; j < n; j += every) cols.index({0, j}) = right;
        const Tensor a = (randn({m, k}, f64) * rows).to(f32),
                     b = (randn({k, n}, f64) * cols).to(f32);
        Tensor c = zeros({m, n});
        multiply(c, way & 1 ? turned(a) : framed(a), way & 2 ? turned(b) : framed(b), way & 4);
        const Tensor exact = matmul(a.to(f64), b.to(f64)),
                     scale = amax(abs(a), {1}, true).to(f64) * amax(abs(b), {0}, true).to(f64);
        const double inner = static_cast<double>(k), least = inner * 0x1p-149;
        EXPECT_LT(largest(abs(c.to(f64) - exact) / (5e-7 * std::sqrt(inner) * scale + least)), 1)
            << left << " " << right << " every " << every << " way " << way;
      }
    }
  }
}

TEST_P(GemmUnits, InfinityAndNaNInBf16) {
  if (!unit->multiplies(bf16)) GTEST_SKIP() << "it has no products of bf16";
  const NoGrad no_grad;
  for (const float value : {kInfinity, kNaN}) {
    Tensor a = full({20, 40}, 0.5, bf16), b = full({40, 33}, 0.5, bf16), c = empty({20, 33});
    a.mutable_data<bfloat16>()[40 * 3 + 7] = value;
    multiply(c, a, b);
    for (int64_t i = 0; i < 20 * 33; ++i) {
      const float got = c.data<float>()[i];
      if (i / 33 != 3) {
        ASSERT_EQ(got, 10);
      } else {
        ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << got;
      }
    }
  }
}

// Through kernel::gemm, which shares the work out: the same bits every time.
TEST(GemmUnit, ResultsRepeat) {
  const NoGrad no_grad;
  for (const DType dtype : {f32, bf16}) {
    const Tensor a = randn({130, 200}).to(dtype), b = turned(randn({200, 90}).to(dtype));
    Tensor first = empty({130, 90}, dtype), second = full({130, 90}, 3, dtype);
    kernel::gemm(first, a, b, false);
    kernel::gemm(second, a, b, false);
    EXPECT_EQ(difference(first, second), 0);
    EXPECT_LT(difference(first, matmul(a.to(f64), b.to(f64))), largest(first) / 200);
  }
}

// Of a command that trains a step: the units, and what it says on standard error.
Ran trained_with(const std::string& environment) {
  return run_shell(environment +
                   " inkling bench --n_layer 1 --n_embd 32 --steps 1 --profile_steps 0");
}

TEST(GemmUnit, TheEnvironmentNamesTheFirst) {
  const std::vector<const GemmUnit*>& units = gemm_units();
  for (size_t first = 0; first < units.size(); ++first) {
    const Ran ran = trained_with(std::string("INKLING_CPU_CAPABILITY=") + units[first]->name);
    for (const DType dtype : {f32, bf16, f64}) {
      const auto unit = std::find_if(units.begin() + static_cast<int64_t>(first), units.end(),
                                     [&](auto* one) { return one->multiplies(dtype); });
      const std::string title = unit == units.end() ? "OpenBLAS" : (*unit)->title;
      const size_t named = ran.out.find(title + " for ");
      ASSERT_NE(named, std::string::npos) << title << "\n" << ran.out;
      const std::string dtypes = ran.out.substr(named, ran.out.find(';', named) - named);
      EXPECT_NE(dtypes.find(name_of(dtype)), std::string::npos) << dtypes;
    }
  }
  const Ran wrong = trained_with("INKLING_CPU_CAPABILITY=sse");
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.err.find("INKLING_CPU_CAPABILITY: expected amx, avx512_bf16, avx512, avx2, neon "
                           "or default, got sse"),
            std::string::npos)
      << wrong.err;
}

TEST(GemmUnit, RatesAreOfUnitsThatMultiply) {
  for (const DType dtype : {f32, bf16, f64}) {
    const std::vector<double> rates = gemm_rates(dtype);
    ASSERT_EQ(rates.size(), gemm_units().size());
    for (size_t i = 0; i < rates.size(); ++i)
      EXPECT_EQ(rates[i] > 0, gemm_units()[i]->multiplies(dtype));
  }
}

// Another unit gives other bits, so the choice is a function of the list alone: rates, which jitter
// by 30 % and more beside other work, are not asked.
TEST(GemmUnit, TheChoiceIsTheOrderOfTheList) {
  const std::vector<const GemmUnit*>& units = gemm_units();
  for (size_t first = 0; first < units.size(); ++first) {
    const FieldGuard from(&Context::first_unit, units[first]);
    for (const DType dtype : {f32, bf16, f64}) {
      for (const bool small : {false, true}) {
        const GemmUnit* expected = nullptr;
        for (size_t i = units.size(); i-- > first;)
          if (units[i]->multiplies(dtype) && (!small || units[i]->pays == nullptr))
            expected = units[i];
        EXPECT_EQ(gemm_unit(dtype, small), expected) << units[first]->name << " " << dtype;
      }
    }
  }
}

TEST(GemmUnit, TheChoiceIsTheSameBesideALoad) {
  const Ran ran = run_shell(
      "for i in 1 2 3 4; do (while :; do :; done) & busy=\"$busy $!\"; done; "
      "for i in $(seq 20); do inkling info | head -n 1; done; kill $busy");
  const std::string first = ran.out.substr(0, ran.out.find('\n') + 1);
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += first;
  EXPECT_NE(first, "");
  EXPECT_EQ(ran.out, expected);
}

TEST(GemmUnit, SlowProductsAreToldOnlyWhereTheyAreOpenBlas) {
  const std::string prescott = "OPENBLAS_CORETYPE=Prescott INKLING_CPU_CAPABILITY=";
  if (trained_with(prescott + "default").out.find("Prescott") == std::string::npos)
    GTEST_SKIP() << "an OpenBLAS without kernels to choose from";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(trained_with(prescott + "default").err,
              "inkling: OpenBLAS multiplies matrices with its Prescott kernels although this "
              "processor has AVX2; unset OPENBLAS_CORETYPE to be about twice as fast\n");
  }
#endif
  if (gemm_unit(f32) != openblas_unit()) {
    EXPECT_EQ(trained_with(prescott + gemm_unit(f32)->name).err, "");
  }
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

TEST(AttentionUnit, AttentionOfBf16IsThatOfF32RoundedToBf16) {
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

TEST(AttentionUnit, QueriesThatSeeNothing) {
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
