// autograd/loops/simd.h: floats against double precision over their whole range, doubles against
// long double. Loops of the functions become vector code here, as in the kernels.
#include "autograd/loops/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/loops/pointwise.h"

namespace ink {
namespace {

template <class T>
constexpr T inf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T denormal = std::numeric_limits<T>::denorm_min();
template <class T>
using Exact = std::conditional_t<std::is_same_v<T, float>, double, long double>;

// Distance from the exact value in units of the last place of the number beside it.
template <class T>
double ulps(T got, Exact<T> exact) {
  const T nearest = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : inf<double>;
  if (std::isinf(nearest) || !std::isfinite(got)) return got == nearest ? 0 : inf<double>;
  const int exponent = nearest == 0 ? -2000 : std::ilogb(exact);
  const Exact<T> ulp = std::max<Exact<T>>(
      denormal<T>, std::ldexp(Exact<T>{1}, exponent - std::numeric_limits<T>::digits + 1));
  return static_cast<double>(std::fabs(got - exact) / ulp);
}

// ---- arguments

// Numbers of random bits, finite or not, and random numbers up to `most` in magnitude.
template <class T>
std::vector<T> random_numbers(T most, int each = 200000) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<T> uniform(-most, most);
  std::vector<T> x;
  for (int i = 0; i < each; ++i) {
    x.push_back(std::bit_cast<T>(static_cast<simd::Bits<T>>(generator())));
    x.push_back(uniform(generator));
  }
  return x;
}

// Every 499th float.
std::vector<float> floats() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 499)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return x;
}
// Numbers of every size, and many near 0 and 1.
std::vector<double> doubles() {
  std::vector<double> x = random_numbers(800.0);
  for (double most : {0.01, 1.0, 3.0, 30.0}) {
    const std::vector<double> more = random_numbers(most);
    x.insert(x.end(), more.begin(), more.end());
  }
  return x;
}
// The numbers of x for which sin and cos are right, and the numbers nearest to multiples of pi / 2,
// where the value has the fewest digits to lose.
template <class T>
std::vector<T> angles(std::vector<T> x) {
  std::erase_if(x, [](T v) { return std::fabs(v) > simd::kMostAngle; });
  for (int k = 1; k < 660000; ++k) {
    const T near = static_cast<T>(k * (std::numbers::pi / 2));
    x.insert(x.end(), {near, std::nextafter(near, T(0)), -near});
  }
  return x;
}

// ---- comparison

template <class T, class F, class Truth>
void expect_close(const std::string& name, const std::vector<T>& x, F f, Truth truth,
                  double tolerance) {
  std::vector<T> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  double worst = 0;
  T at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps<T>(y[i], truth(static_cast<Exact<T>>(x[i])));
    if (error > worst) worst = error, at = x[i];
  }
  EXPECT_LE(worst, tolerance) << name << "(" << at << ")";
  ::testing::Test::RecordProperty(name, std::to_string(worst));
  std::printf("  %s: at most %.3f ulp, at %.17g\n", name.c_str(), worst, static_cast<double>(at));
}
template <class F, class Truth>
void expect_both_close(const std::string& name, F f, Truth truth, double tolerance) {
  expect_close(name + " float", floats(), f, truth, tolerance);
  expect_close(name + " double", doubles(), f, truth, tolerance);
}

#define EXPECT_FUNCTION(name, tolerance) \
  expect_both_close(                     \
      #name, [](auto x) { return simd::name(x); }, [](auto x) { return std::name(x); }, tolerance)
TEST(Simd, Exp) { EXPECT_FUNCTION(exp, 1.2); }
TEST(Simd, Expm1) { EXPECT_FUNCTION(expm1, 2); }
TEST(Simd, Log) { EXPECT_FUNCTION(log, 1); }
TEST(Simd, Log1p) { EXPECT_FUNCTION(log1p, 1.7); }
TEST(Simd, Tanh) { EXPECT_FUNCTION(tanh, 3); }
TEST(Simd, Erf) { EXPECT_FUNCTION(erf, 1.8); }
#undef EXPECT_FUNCTION

TEST(Simd, ExpOfNonpositive) {
  const auto f = [](auto x) { return simd::exp_nonpositive(-std::fabs(x)); };
  const auto truth = [](auto x) { return std::exp(-std::fabs(x)); };
  expect_close(
      "exp_nonpositive float", floats(), f,
      [&](double x) { return std::fabs(x) > 87 ? 0 : truth(x); }, 1.2);
  expect_close(
      "exp_nonpositive double", doubles(), f,
      [&](long double x) { return std::fabs(x) > 708 ? 0 : truth(x); }, 1.2);
}

// Points at every angle and distance, and zeros and infinities of both signs.
template <class T>
void expect_atan2() {
  std::vector<T> y = random_numbers(T(1)), x = y;
  std::shuffle(x.begin(), x.end(), std::mt19937(1));
  for (T a : {T(0), T(1), denormal<T>, std::numeric_limits<T>::max(), inf<T>, nan<T>}) {
    for (T b : {T(0), T(1), denormal<T>, std::numeric_limits<T>::max(), inf<T>, nan<T>}) {
      y.insert(y.end(), {a, a, -a, -a});
      x.insert(x.end(), {b, -b, b, -b});
    }
  }
  std::vector<T> angle(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) angle[i] = simd::atan2(y[i], x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    const Exact<T> exact = std::atan2(Exact<T>{y[i]}, Exact<T>{x[i]});
    ASSERT_LE(ulps<T>(angle[i], exact), 2) << y[i] << " " << x[i] << ": " << angle[i];
    ASSERT_TRUE(std::signbit(angle[i]) == std::signbit(exact) || std::isnan(exact)) << y[i];
  }
}
TEST(Simd, Atan2) {
  expect_atan2<float>();
  expect_atan2<double>();
}

TEST(Simd, SinAndCos) {
  const auto sin = [](auto x) { return std::sin(x); };
  const auto cos = [](auto x) { return std::cos(x); };
  const std::vector<float> narrow = angles(floats());
  expect_close(
      "sin float", narrow, [](float v) { return simd::sin(v); }, sin, 1.9);
  expect_close(
      "cos float", narrow, [](float v) { return simd::cos(v); }, cos, 1.6);
  std::vector<double> x = doubles(), large = random_numbers(simd::kMostAngle);
  x.insert(x.end(), large.begin(), large.end());
  x = angles(std::move(x));
  expect_close(
      "sin double", x, [](double v) { return simd::sin(v); }, sin, 1.6);
  expect_close(
      "cos double", x, [](double v) { return simd::cos(v); }, cos, 1.6);
}

TEST(Simd, Rsqrt) {
  expect_close(
      "rsqrt", floats(), [](float x) { return formula::rsqrt::f(x); },
      [](double x) { return 1 / std::sqrt(x); }, 2);
}

// ---- pow

template <class T>
void expect_pow_close(const std::vector<T>& a, const std::vector<T>& b, double tolerance) {
  std::vector<T> y(a.size());
#pragma omp simd
  for (size_t i = 0; i < a.size(); ++i) y[i] = simd::pow(a[i], b[i]);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = ulps<T>(y[i], std::pow(Exact<T>{a[i]}, Exact<T>{b[i]}));
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, tolerance) << "pow(" << a[at] << ", " << b[at] << ") = " << y[at];
  std::printf("  pow: at most %.3f ulp, of %.9g ^ %.9g\n", worst, static_cast<double>(a[at]),
              static_cast<double>(b[at]));
}

template <class T>
void check_pow(double tolerance) {
  const std::vector<T> any = random_numbers(T(3)), small = random_numbers(T(20));
  std::vector<T> b(any.size());
  // Exponents that give results of every size; then whole ones; then any.
  const T most = std::log(std::numeric_limits<T>::max()) * T(1.05);
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = most * std::sin(static_cast<T>(i)) / std::log(std::fabs(any[i]));
  expect_pow_close(any, b, tolerance);
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::nearbyint(small[i]);
  expect_pow_close(any, b, tolerance);
  expect_pow_close(any, std::vector<T>(any.rbegin(), any.rend()), tolerance);
  // Bases near 1, whose logarithm has few digits, with exponents as large.
  std::vector<T> near_one(b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    near_one[i] = T(1) + std::ldexp(small[i], -static_cast<int>(i % 50) - 5);
    b[i] = most * std::sin(static_cast<T>(i)) / std::log(near_one[i]);
  }
  expect_pow_close(near_one, b, tolerance);

  const T large = std::ldexp(T(1), std::numeric_limits<T>::digits - 1);
  const std::vector<T> special{
      0,           1,      2,         0.5,           3,         T(1e30),
      denormal<T>, inf<T>, large + 1, 2 * large - 1, 2 * large, T(1) + T(1) / large,
      nan<T>};
  for (T base : special) {
    for (T exponent : special) {
      for (int signs = 0; signs < 4; ++signs) {
        const T p = signs & 1 ? -base : base, q = signs & 2 ? -exponent : exponent;
        const T got = simd::pow(p, q), expected = std::pow(p, q);
        EXPECT_LE(ulps<T>(got, expected), 2) << p << " ^ " << q << ": " << got << ", " << expected;
        EXPECT_TRUE(std::isnan(got) || std::signbit(got) == std::signbit(expected))
            << p << " ^ " << q << " = " << got;
      }
    }
  }
}
TEST(Simd, PowOfFloats) { check_pow<float>(0.51); }
TEST(Simd, PowOfDoubles) { check_pow<double>(1.5); }

// ---- special values

template <class T>
void check_special_values() {
  EXPECT_EQ(simd::exp(T(0)), T(1));
  EXPECT_EQ(simd::exp(-inf<T>), T(0));
  EXPECT_EQ(simd::exp(inf<T>), inf<T>);
  const T largest = std::log(std::numeric_limits<T>::max()), least = std::log(denormal<T>);
  EXPECT_EQ(simd::exp(largest + T(0.1)), inf<T>);
  EXPECT_EQ(simd::exp(least + T(0.1)), denormal<T>);
  EXPECT_EQ(simd::exp(least - T(0.8)), T(0));

  EXPECT_EQ(simd::exp_nonpositive(T(0)), T(1));
  EXPECT_EQ(simd::exp_nonpositive(-inf<T>), T(0));

  EXPECT_EQ(simd::expm1(inf<T>), inf<T>);
  EXPECT_EQ(simd::expm1(-inf<T>), T(-1));

  EXPECT_EQ(simd::log(T(1)), T(0));
  EXPECT_EQ(simd::log1p(T(-1)), -inf<T>);
  for (T zero : {T(0), -T(0)}) EXPECT_EQ(simd::log(zero), -inf<T>);
  EXPECT_LE(ulps<T>(simd::log(denormal<T>), std::log(Exact<T>{denormal<T>})), 1);
  for (T negative : {T(-2), -inf<T>}) {
    EXPECT_TRUE(std::isnan(simd::log(negative)));
    EXPECT_TRUE(std::isnan(simd::log1p(negative)));
  }
  for (auto f : {simd::log<T>, simd::log1p<T>}) EXPECT_EQ(f(inf<T>), inf<T>);

  for (auto f : {simd::tanh<T>, simd::erf<T>}) {
    EXPECT_EQ(f(inf<T>), T(1));
    EXPECT_EQ(f(-inf<T>), T(-1));
  }
  for (auto f : {simd::expm1<T>, simd::log1p<T>, simd::tanh<T>, simd::sin<T>}) {
    EXPECT_EQ(f(denormal<T>), denormal<T>);
    EXPECT_EQ(f(-denormal<T>), -denormal<T>);
  }
  for (auto f : {simd::expm1<T>, simd::log1p<T>, simd::tanh<T>, simd::sin<T>, simd::erf<T>}) {
    EXPECT_TRUE(f(-T(0)) == 0 && std::signbit(f(-T(0))));
    EXPECT_TRUE(f(T(0)) == 0 && !std::signbit(f(T(0))));
  }
  for (auto f : {simd::exp<T>, simd::exp_nonpositive<T>, simd::expm1<T>, simd::log<T>,
                 simd::log1p<T>, simd::tanh<T>, simd::erf<T>, simd::sin<T>, simd::cos<T>})
    EXPECT_TRUE(std::isnan(f(nan<T>)));
}
TEST(Simd, SpecialValuesOfFloats) { check_special_values<float>(); }
TEST(Simd, SpecialValuesOfDoubles) { check_special_values<double>(); }

// ---- the normal distribution, whose error counts beside 1

TEST(Simd, NormalDistribution) {
  double worst = 0;
  for (float x = -20; x <= 20; x += 1e-4f) {
    const double exact = std::erfc(-x / std::numbers::sqrt2) / 2;
    worst = std::max(worst, std::fabs(formula::Normal<float>(x).cdf() - exact));
  }
  EXPECT_LE(worst, 7e-8);
}

}  // namespace
}  // namespace ink
