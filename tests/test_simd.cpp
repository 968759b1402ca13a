// autograd/base/simd.h against double precision, over the whole range of floats.
#include "autograd/base/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "autograd/loops/pointwise.h"

namespace ink {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float denormal = std::numeric_limits<float>::denorm_min();

// Distance from the exact value in units of the last place of the float beside it.
double ulps(float got, double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e9;
  const double ulp =
      std::max<double>(denormal, std::ldexp(1.0, std::ilogb(exact == 0 ? 1e-45 : exact) - 23));
  return std::fabs(got - exact) / ulp;
}

// Every 499th float, finite or not; the loop of f becomes vector code, as in the kernels.
template <class F, class Exact>
void expect_close(const char* name, F f, Exact exact, double tolerance) {
  constexpr uint32_t step = 499, batch = 1 << 16;
  std::vector<float> x(batch), y(batch);
  double worst = 0;
  float at = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32);) {
    for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(bits)), bits += step;
#pragma omp simd
    for (uint32_t i = 0; i < batch; ++i) y[i] = f(x[i]);
    for (uint32_t i = 0; i < batch; ++i) {
      const double truth = exact(static_cast<double>(x[i]));
      if (std::isnan(truth)) {
        EXPECT_TRUE(std::isnan(y[i])) << name << "(" << x[i] << ") = " << y[i];
      } else if (const double error = ulps(y[i], truth); !(error <= worst)) {
        worst = error;
        at = x[i];
      }
    }
  }
  EXPECT_LE(worst, tolerance) << name << "(" << at << ")";
  ::testing::Test::RecordProperty(name, std::to_string(worst));
  std::printf("  %s: at most %.3f ulp, at %g\n", name, worst, at);
}

TEST(Simd, ExpIsWithinTwoUlp) {
  expect_close(
      "exp", [](float x) { return simd::exp(x); }, [](double x) { return std::exp(x); }, 2);
}
TEST(Simd, ExpOfNonpositiveIsWithinTwoUlpOrZero) {
  expect_close(
      "exp_nonpositive", [](float x) { return simd::exp_nonpositive(-std::fabs(x)); },
      [](double x) { return std::fabs(x) > 87 ? 0 : std::exp(-std::fabs(x)); }, 2);
}
TEST(Simd, LogIsWithinTwoUlp) {
  expect_close(
      "log", [](float x) { return simd::log(x); }, [](double x) { return std::log(x); }, 2);
}
TEST(Simd, TanhIsWithinTwoUlp) {
  expect_close(
      "tanh", [](float x) { return simd::tanh(x); }, [](double x) { return std::tanh(x); }, 2);
}
TEST(Simd, ErfIsWithinTwoUlp) {
  expect_close(
      "erf", [](float x) { return simd::erf(x); }, [](double x) { return std::erf(x); }, 2);
}

TEST(Simd, RsqrtIsWithinTwoUlp) {
  expect_close(
      "rsqrt", [](float x) { return formula::rsqrt::f(x); },
      [](double x) { return 1 / std::sqrt(x); }, 2);
}

TEST(Simd, SpecialValues) {
  EXPECT_EQ(simd::exp(0.0f), 1.0f);
  EXPECT_EQ(simd::exp(-inf), 0.0f);
  EXPECT_EQ(simd::exp(inf), inf);
  EXPECT_EQ(simd::exp(88.8f), inf);
  EXPECT_EQ(simd::exp(-103.0f), denormal);
  EXPECT_EQ(simd::exp(-104.0f), 0.0f);
  EXPECT_TRUE(std::isnan(simd::exp(nan)));

  EXPECT_EQ(simd::exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(simd::exp_nonpositive(-inf), 0.0f);
  EXPECT_TRUE(std::isnan(simd::exp_nonpositive(nan)));

  EXPECT_EQ(simd::log(1.0f), 0.0f);
  EXPECT_EQ(simd::log(0.0f), -inf);
  EXPECT_EQ(simd::log(-0.0f), -inf);
  EXPECT_EQ(simd::log(inf), inf);
  EXPECT_FLOAT_EQ(simd::log(denormal), -103.278929f);
  EXPECT_TRUE(std::isnan(simd::log(-1.0f)));
  EXPECT_TRUE(std::isnan(simd::log(-inf)));
  EXPECT_TRUE(std::isnan(simd::log(nan)));

  EXPECT_EQ(simd::tanh(inf), 1.0f);
  EXPECT_EQ(simd::tanh(-inf), -1.0f);
  EXPECT_TRUE(std::signbit(simd::tanh(-0.0f)));
  EXPECT_EQ(simd::tanh(denormal), denormal);
  EXPECT_TRUE(std::isnan(simd::tanh(nan)));

  EXPECT_EQ(simd::erf(inf), 1.0f);
  EXPECT_EQ(simd::erf(-inf), -1.0f);
  EXPECT_TRUE(std::signbit(simd::erf(-0.0f)));
  EXPECT_TRUE(std::isnan(simd::erf(nan)));
}

TEST(Simd, DoublesAreLibm) {
  EXPECT_EQ(simd::exp(0.3), std::exp(0.3));
  EXPECT_EQ(simd::log(0.3), std::log(0.3));
  EXPECT_EQ(simd::tanh(0.3), std::tanh(0.3));
  EXPECT_EQ(simd::erf(0.3), std::erf(0.3));
}

}  // namespace
}  // namespace ink
