// Elementwise ops and comparisons: values and gradients where PyTorch has a say (infinities, NaN,
// zeros, ties), dtypes of results, and error texts. Layouts, broadcasting and ordinary gradients
// are checked by the rows of train/cases/op_cases.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

void expect_values(const Tensor& got, const std::vector<double>& expected) {
  const auto values = got.tolist();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << "element " << i << " is " << values[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(values[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(values[i], expected[i], 2e-6 * std::max(1.0, std::abs(expected[i])))
          << "element " << i;
    }
  }
}

// ---- one tensor

struct UnaryCase {
  const char* name;
  Tensor (*op)(const Tensor&);
  std::vector<double> values, gradients;  // PyTorch's, at the points below
};
const std::vector<double> points{-3, -0.5, 0, 0.25, 2, inf, -inf, nan};

// clang-format off
const std::vector<UnaryCase> unary_cases{
    {"exp", exp, {0.049787067, 0.60653066, 1, 1.28402543, 7.3890561, inf, 0, nan},
                 {0.049787067, 0.60653066, 1, 1.28402543, 7.3890561, inf, 0, nan}},
    {"log", log, {nan, nan, -inf, -1.38629436, 0.69314718, inf, nan, nan},
                 {-0.33333333, -2, inf, 4, 0.5, 0, 0, nan}},
    {"sqrt", sqrt, {nan, nan, 0, 0.5, 1.41421354, inf, nan, nan},
                   {nan, nan, inf, 1, 0.35355338, 0, nan, nan}},
    {"rsqrt", rsqrt, {nan, nan, inf, 2, 0.70710677, 0, nan, nan},
                     {nan, nan, -inf, -4, -0.17677668, 0, nan, nan}},
    {"sin", sin, {-0.14112000, -0.47942555, 0, 0.24740396, 0.90929741, nan, nan, nan},
                 {-0.98999250, 0.87758255, 1, 0.96891242, -0.41614684, nan, nan, nan}},
    {"cos", cos, {-0.98999250, 0.87758255, 1, 0.96891242, -0.41614684, nan, nan, nan},
                 {0.14112000, 0.47942555, 0, -0.24740396, -0.90929741, nan, nan, nan}},
    {"tanh", tanh, {-0.99505478, -0.46211717, 0, 0.24491866, 0.96402758, 1, -1, nan},
                   {0.0098660, 0.78644773, 1, 0.94001484, 0.070650816, 0, 0, nan}},
    {"sigmoid", sigmoid, {0.047425874, 0.37754068, 0.5, 0.56217653, 0.88079703, 1, 0, nan},
                         {0.045176659, 0.23500371, 0.25, 0.24613407, 0.10499363, 0, 0, nan}},
    {"silu", silu, {-0.14227762, -0.18877034, 0, 0.14054413, 1.76159406, inf, nan, nan},
                   {-0.088104106, 0.26003882, 0.5, 0.62371004, 1.09078431, nan, nan, nan}},
    {"erf", erf, {-0.99997791, -0.52049988, 0, 0.27632639, 0.99532227, 1, -1, nan},
                 {0.00013925305, 0.87878263, 1.12837923, 1.06001425, 0.020666987, 0, 0, nan}},
    {"gelu", [](const Tensor& x) { return gelu(x); },
             {-0.0040496942, -0.15426877, 0, 0.14967658, 1.95449972, inf, nan, nan},
             {-0.011945640, 0.13250491, 0.5, 0.69537330, 1.08523190, nan, nan, nan}},
    {"gelu_tanh", [](const Tensor& x) { return gelu(x, Gelu::tanh); },
                  {-0.0036373919, -0.15428600, 0, 0.14967536, 1.95459771, inf, nan, nan},
                  {-0.011584155, 0.13263011, 0.5, 0.69535410, 1.08609927, nan, nan, nan}},
    {"relu", relu, {0, 0, 0, 0.25, 2, inf, 0, nan}, {0, 0, 0, 1, 1, 1, 0, 1}},
    {"abs", abs, {3, 0.5, 0, 0.25, 2, inf, inf, nan}, {-1, -1, 0, 1, 1, 1, -1, 0}},
    {"sign", sign, {-1, -1, 0, 1, 1, 1, -1, 0}, {0, 0, 0, 0, 0, 0, 0, 0}},
    {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 1); },
              {-0.5, -0.5, 0, 0.25, 1, 1, -0.5, nan}, {0, 0, 1, 1, 0, 0, 0, 0}},
    {"square", [](const Tensor& x) { return pow(x, 2); }, {9, 0.25, 0, 0.0625, 4, inf, inf, nan},
               {-6, -1, 0, 0.5, 4, inf, -inf, nan}},
    {"root", [](const Tensor& x) { return pow(x, 0.5); },
             {nan, nan, 0, 0.5, 1.41421354, inf, nan, nan},
             {nan, nan, inf, 1, 0.35355338, 0, nan, nan}},
    {"to the 0", [](const Tensor& x) { return pow(x, 0); },
                 {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}},
};
// clang-format on

TEST(Pointwise, OneTensorAsPyTorch) {
  for (const UnaryCase& c : unary_cases) {
    for (bool written_out : {false, true}) {  // the gradient in one pass, and out of public ops
      SCOPED_TRACE(std::string(c.name) + (written_out ? ", composed" : ""));
      FlagGuard composed(&Context::composed, written_out);
      Tensor x = from_vector(points).to(f32);
      x.requires_grad_();
      const Tensor y = c.op(x);
      expect_values(y, c.values);
      sum(y).backward();
      expect_values(x.grad(), c.gradients);
    }
  }
}

TEST(Pointwise, ZeroKeepsItsSign) {
  const Tensor zero = tensor({-0.0});
  for (auto op : {sin, tanh, erf, sqrt, relu})
    EXPECT_TRUE(std::signbit(op(zero).item())) << "-0 became +0";
}

// A chunk of 256 elements with a large angle is computed apart from the others.
TEST(Pointwise, SinAndCosOfAnyAngle) {
  std::vector<double> angles;
  for (int i = 0; i < 3000; ++i) angles.push_back(i % 700 == 5 ? std::ldexp(1.3, i / 30) : i * 0.1);
  for (DType dtype : {f64, f32, bf16}) {
    for (bool strided : {false, true}) {
      Tensor x = from_vector(angles).to(dtype);
      if (strided) x = select(stack({x, x}, 1), 1, 0);
      x.requires_grad_();
      const auto exact = x.to(f64).tolist();
      const double tolerance = dtype == f64 ? 1e-15 : dtype == f32 ? 1e-7 : 4e-3;
      const Tensor sines = sin(x), cosines = cos(x);
      const Tensor slopes = grad({sines}, {x}, {ones_like(x)})[0],
                   falls = grad({cosines}, {x}, {ones_like(x)})[0];
      const auto s = sines.tolist(), c = cosines.tolist(), ds = slopes.tolist(),
                 dc = falls.tolist();
      for (size_t i = 0; i < exact.size(); ++i) {
        SCOPED_TRACE(exact[i]);
        ASSERT_NEAR(s[i], std::sin(exact[i]), tolerance);
        ASSERT_NEAR(c[i], std::cos(exact[i]), tolerance);
        ASSERT_NEAR(ds[i], std::cos(exact[i]), tolerance);
        ASSERT_NEAR(dc[i], -std::sin(exact[i]), tolerance);
      }
    }
  }
}

// A chunk with arguments that are infinite, denormal or large is computed apart, too.
TEST(Pointwise, ExpAndLogOfAnyNumber) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> unusual = {0,
                                       -0.0,
                                       1e-40,
                                       5e-320,
                                       -1,
                                       88.7,
                                       100,
                                       -104,
                                       709,
                                       1e300,
                                       inf,
                                       -inf,
                                       std::numeric_limits<double>::quiet_NaN()};
  std::vector<double> numbers;
  for (int i = 0; i < 6000; ++i)
    numbers.push_back(i % 397 == 5 ? unusual[static_cast<size_t>(i / 397) % unusual.size()]
                                   : 0.01 * (i + 1));
  for (DType dtype : {f64, f32, bf16}) {
    const Tensor x = from_vector(numbers).to(dtype), powers = exp(x), logs = log(x);
    const auto exact = x.to(f64).tolist(), e = powers.tolist(), l = logs.tolist();
    const double tolerance = dtype == f64 ? 5e-16 : dtype == f32 ? 2e-7 : 4e-3;
    const auto expect = [&](double got, double value) {
      const double rounded = full({}, value, f64).to(dtype).item();
      if (std::isnan(rounded) || std::isinf(rounded)) {
        EXPECT_TRUE(std::isnan(rounded) ? std::isnan(got) : got == rounded) << got;
      } else {
        EXPECT_NEAR(got, rounded, tolerance * std::fabs(rounded));
      }
    };
    for (size_t i = 0; i < exact.size(); ++i) {
      SCOPED_TRACE(exact[i]);
      expect(e[i], std::exp(exact[i]));
      expect(l[i], std::log(exact[i]));
    }
  }
}

TEST(Pointwise, ClampByNaNAndByBoundsInReverse) {
  const Tensor x = tensor({-3.0, 0.0, 3.0, nan});
  expect_values(clamp(x, nan, 1), {nan, nan, nan, nan});
  expect_values(clamp(x, -1, nan), {nan, nan, nan, nan});
  expect_values(clamp(x, 2, -2), {-2, -2, -2, nan});
  expect_values(clamp(tensor({-3, 0, 3}), -1, 2), {-1, 0, 2});
}

// ---- two tensors

TEST(Pointwise, PowAtZero) {
  Tensor a = tensor({2.0, 0.0, 0.0, -2.0, 3.0}), b = tensor({3.0, 2.0, 0.0, 2.0, -1.0});
  a.requires_grad_();
  b.requires_grad_();
  const Tensor y = pow(a, b);
  expect_values(y, {8, 0, 1, 4, 1 / 3.0});
  sum(y).backward();
  expect_values(a.grad(), {12, 0, 0, -4, -1 / 9.0});
  expect_values(b.grad(), {8 * std::log(2), 0, 0, nan, std::log(3) / 3});
}

TEST(Pointwise, ExtremaShareTiesAndKeepNaN) {
  for (const bool larger : {true, false}) {
    Tensor a = tensor({1.0, 2.0, nan, 1.0}), b = tensor({1.0, 3.0, 1.0, nan});
    a.requires_grad_();
    b.requires_grad_();
    const Tensor y = larger ? maximum(a, b) : minimum(a, b);
    const double loses = larger ? 0 : 1, wins = 1 - loses;
    expect_values(y, {1, larger ? 3.0 : 2.0, nan, nan});
    sum(y).backward();
    expect_values(a.grad(), {0.5, loses, 1, 1});
    expect_values(b.grad(), {0.5, wins, 1, 1});
  }
}

TEST(Pointwise, ClampSharesTies) {
  Tensor x = tensor({1.0, 2.0, 3.0, 0.0, 4.0, 2.0}).requires_grad_(),
         low = tensor({1.0, 1.0, 1.0, 1.0, 1.0, 2.0}).requires_grad_(),
         high = tensor({3.0, 3.0, 3.0, 3.0, 3.0, 2.0}).requires_grad_();
  const Tensor y = clamp(x, low, high);
  expect_values(y, {1, 2, 3, 1, 3, 2});
  sum(y).backward();
  expect_values(x.grad(), {0.5, 1, 0.5, 0, 0, 1});
  expect_values(low.grad(), {0.5, 0, 0, 1, 0, 0});
  expect_values(high.grad(), {0, 0, 0.5, 0, 1, 0});
}

TEST(Pointwise, WhereIsNotTouchedByWhatItLeavesOut) {
  Tensor x = tensor({0.0, 4.0});
  x.requires_grad_();
  const Tensor y = where(x > 0, x * 2, zeros_like(x));
  expect_values(y, {0, 8});
  sum(y).backward();
  expect_values(x.grad(), {0, 2});
  expect_values(masked_fill(tensor({nan, 1.0}), tensor({true, false}), -inf), {-inf, 1});
  const Tensor numbers = where(tensor({true, false}), 1.0, 2.0);
  EXPECT_EQ(numbers.dtype(), f32);
  expect_values(numbers, {1, 2});
}

TEST(Pointwise, NumbersFromBothSides) {
  const Tensor x = tensor({1.0, 2.0, 4.0});
  expect_values(x + 1, {2, 3, 5});
  expect_values(1 + x, {2, 3, 5});
  expect_values(x - 1, {0, 1, 3});
  expect_values(1 - x, {0, -1, -3});
  expect_values(x * 3, {3, 6, 12});
  expect_values(3 * x, {3, 6, 12});
  expect_values(x / 2, {0.5, 1, 2});
  expect_values(2 / x, {2, 1, 0.5});
  expect_values(-x, {-1, -2, -4});
  expect_values(x / 0, {inf, inf, inf});
}

// ---- dtypes

TEST(Pointwise, DtypesMeetAsInPyTorch) {
  const auto meet = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ((a + b).dtype(), (b + a).dtype());
    return (a * b).dtype();
  };
  const Tensor f = ones({2}, f32), d = ones({2}, f64), h = ones({2}, bf16), i = ones({2}, i64),
               b = ones({2}, boolean), scalar_f = ones({}, f32), scalar_d = ones({}, f64),
               scalar_i = ones({}, i64);
  EXPECT_EQ(meet(f, d), f64);
  EXPECT_EQ(meet(f, h), f32);
  EXPECT_EQ(meet(h, d), f64);
  EXPECT_EQ(meet(i, h), bf16);
  EXPECT_EQ(meet(b, f), f32);
  EXPECT_EQ(meet(b, i), i64);
  EXPECT_EQ(meet(b, b), boolean);
  EXPECT_EQ(meet(f, scalar_d), f32);  // a scalar's width does not count,
  EXPECT_EQ(meet(h, scalar_f), bf16);
  EXPECT_EQ(meet(i, scalar_d), f64);  // but its kind does
  EXPECT_EQ(meet(h, scalar_i), bf16);
  EXPECT_EQ(meet(scalar_f, scalar_d), f64);
  EXPECT_EQ((i / i).dtype(), f32);
  EXPECT_EQ((i / 2).dtype(), f32);
  EXPECT_EQ((i + 2).dtype(), i64);
  EXPECT_EQ((i + 0.5).dtype(), f32);
  EXPECT_EQ((i * inf).dtype(), f32);
  EXPECT_EQ((b + 1).dtype(), i64);
  EXPECT_EQ((h * 0.1).dtype(), bf16);
  EXPECT_EQ(exp(i).dtype(), f32);
  EXPECT_EQ(abs(i).dtype(), i64);
  EXPECT_EQ(where(b, i, h).dtype(), bf16);
  EXPECT_EQ(clamp(i, 0.5).dtype(), f32);
  EXPECT_EQ((i < 0.5).dtype(), boolean);
}

// A row beside one number has a loop of its own.
TEST(Pointwise, ColumnsAreBroadcastAlongRows) {
  using Op = Tensor (*)(const Tensor&, const Tensor&);
  const std::vector<Op> ops = {
      [](const Tensor& a, const Tensor& b) { return a + b; },
      [](const Tensor& a, const Tensor& b) { return a - b; },
      [](const Tensor& a, const Tensor& b) { return a / b; },
      [](const Tensor& a, const Tensor& b) { return pow(a, b); },
      [](const Tensor& a, const Tensor& b) { return a % b; },
      [](const Tensor& a, const Tensor& b) { return maximum(a, b); },
      [](const Tensor& a, const Tensor& b) { return a < b; },
      [](const Tensor& a, const Tensor& b) { return logical_xor(a, b); },
  };
  for (DType dtype : {f32, f64, bf16, i64}) {
    const Tensor x = randint(1, 9, {5, 100}).to(dtype), column = randint(1, 9, {5, 1}).to(dtype);
    const Tensor whole = column.expand({5, 100}).contiguous();
    for (const Op& op : ops) {
      EXPECT_TRUE(equal(op(x, column), op(x, whole)));
      EXPECT_TRUE(equal(op(column, x), op(whole, x)));
      EXPECT_TRUE(equal(op(x.narrow(1, 3, 70), column), op(x, whole).narrow(1, 3, 70)));
    }
  }
}

// As many dimensions as a tensor can have, none of which can be joined to its neighbour.
TEST(Pointwise, EightDimensions) {
  const Shape shape = Shape::filled(Shape::kMaxDims, 2);
  const Tensor x = arange(256).reshape(shape), turned = x.permute({7, 6, 5, 4, 3, 2, 1, 0});
  const std::vector<double> sums = (x + turned).tolist();
  for (size_t i = 0; i < 256; ++i) {
    size_t reversed = 0;  // the index of the same element in x
    for (size_t bit = 0; bit < 8; ++bit) reversed |= (i >> bit & 1) << (7 - bit);
    EXPECT_EQ(sums[i], static_cast<double>(i + reversed));
  }
}

TEST(Pointwise, GradientsComeBackInTheInputsDtype) {
  Tensor a = ones({2, 3}, bf16), b = ones({3}, f64);
  a.requires_grad_();
  b.requires_grad_();
  sum(a * b).backward();
  EXPECT_EQ(a.grad().dtype(), bf16);
  EXPECT_EQ(b.grad().dtype(), f64);
  EXPECT_EQ(b.grad().shape(), (Shape{3}));
}

TEST(Pointwise, Integers) {
  const Tensor a = tensor({7, -7, 0, 1LL << 40}), b = tensor({2, 2, 5, 3});
  EXPECT_EQ((a + b).tolist<int64_t>(), (std::vector<int64_t>{9, -5, 5, (1LL << 40) + 3}));
  EXPECT_EQ((a - b).tolist<int64_t>(), (std::vector<int64_t>{5, -9, -5, (1LL << 40) - 3}));
  EXPECT_EQ((a * b).tolist<int64_t>(), (std::vector<int64_t>{14, -14, 0, 3LL << 40}));
  EXPECT_EQ((10 - a).tolist<int64_t>(), (std::vector<int64_t>{3, 17, 10, 10 - (1LL << 40)}));
  EXPECT_EQ((-a).tolist<int64_t>(), (std::vector<int64_t>{-7, 7, 0, -(1LL << 40)}));
  EXPECT_EQ(abs(a).tolist<int64_t>(), (std::vector<int64_t>{7, 7, 0, 1LL << 40}));
  EXPECT_EQ(sign(a).tolist<int64_t>(), (std::vector<int64_t>{1, -1, 0, 1}));
  EXPECT_EQ(relu(a).tolist<int64_t>(), (std::vector<int64_t>{7, 0, 0, 1LL << 40}));
  EXPECT_EQ(maximum(a, b).tolist<int64_t>(), (std::vector<int64_t>{7, 2, 5, 1LL << 40}));
  EXPECT_EQ(minimum(a, b).tolist<int64_t>(), (std::vector<int64_t>{2, -7, 0, 3}));
  EXPECT_EQ(clamp(a, -1, 5).tolist<int64_t>(), (std::vector<int64_t>{5, -1, 0, 5}));
  EXPECT_EQ(pow(a.narrow(0, 0, 3), b.narrow(0, 0, 3)).tolist<int64_t>(),
            (std::vector<int64_t>{49, 49, 0}));
  EXPECT_EQ(pow(tensor({2, 1, -1, -1}), tensor({-1, -3, -3, -2})).tolist<int64_t>(),
            (std::vector<int64_t>{0, 1, -1, 1}));
  EXPECT_EQ(pow(tensor({-3, 2}), 3).tolist<int64_t>(), (std::vector<int64_t>{-27, 8}));
  expect_values(tensor({7, 1}) / tensor({2, 4}), {3.5, 0.25});
}

TEST(Pointwise, Bools) {
  const Tensor a = tensor({true, true, false, false}), b = tensor({true, false, true, false});
  using V = std::vector<bool>;
  EXPECT_EQ((a + b).tolist<bool>(), (V{true, true, true, false}));
  EXPECT_EQ((a * b).tolist<bool>(), (V{true, false, false, false}));
  EXPECT_EQ(maximum(a, b).tolist<bool>(), (V{true, true, true, false}));
  EXPECT_EQ(logical_and(a, b).tolist<bool>(), (V{true, false, false, false}));
  EXPECT_EQ(logical_or(a, b).tolist<bool>(), (V{true, true, true, false}));
  EXPECT_EQ(logical_xor(a, b).tolist<bool>(), (V{false, true, true, false}));
  EXPECT_EQ(logical_not(a).tolist<bool>(), (V{false, false, true, true}));
  EXPECT_EQ(logical_and(tensor({2.0, 0.0, nan}), tensor({1, 1, 1})).tolist<bool>(),
            (V{true, false, true}));
  EXPECT_EQ((a == b).tolist<bool>(), (V{true, false, false, true}));
  EXPECT_EQ((a < 2).tolist<bool>(), (V{true, true, true, true}));
  EXPECT_EQ(error_of([&] {
              a& tensor({true, false});
            }),
            "bitwise_and: shapes (4,) and (2,) do not broadcast");
}

// PyTorch 2.15 rounds the difference to bf16 first, but for smooth_l1_loss.
TEST(Pointwise, LossesOfBf16) {
  const Tensor x = tensor({-0.115234375}, bf16), y = tensor({-0.6484375}, bf16);
  EXPECT_EQ(smooth_l1_loss(x, y).item(), 0.142578125);
  EXPECT_EQ(mse_loss(x, y).item(), 0.28125);
  EXPECT_EQ(l1_loss(x, y).item(), 0.53125);
  EXPECT_EQ(smooth_l1_loss(x, y).dtype(), bf16);
}

// ---- comparisons

// Activations and losses in both tails, against numbers with 50 digits (golden/tails.txt, made by
// golden/tails_fixtures.py): value and gradient, in units in the last place.
struct Tails {
  std::string name;  // in the fixture
  std::function<Tensor(const Tensor&)> f;
  double most = 4;       // units
  double crossing = 0;   // a gradient that is 0 near here has units of 0.1 within 1.5 of it
  bool of_one = false;   // the gradient is made from the result, as in PyTorch: units of 1
  double to_in_f64 = 0;  // beyond -this, f64 has a thousand units
};

// f(x) of logits (x, 0, 0) and a class, and of `more` that are -inf.
template <class F>
auto of_classes(double target, F&& f, int64_t more = 37) {
  return [target, f, more](const Tensor& x) {
    const Tensor zero = zeros_like(x.detach());
    const Tensor never = full({x.numel(), more}, -inf, {x.dtype(), x.device()});
    return f(cat({stack({x, zero, zero}, 1), never}, 1),
             full({x.numel()}, target, {i64, x.device()}));
  };
}
// The same by a head whose weights are 1, 0 and 0.
Tensor by_head(const Tensor& x, double target) {
  const Tensor w = tensor({1, 0, 0}, x.dtype()).view({3, 1});
  return linear_cross_entropy(x.unsqueeze(1), w.to(x.device()),
                              full({x.numel()}, target, {i64, x.device()}), -100, Reduction::none);
}

std::vector<Tails> tails() {
  const bool on_cpu = context().default_device.is_cpu();  // on a GPU, other ops lose digits
  const auto none = Reduction::none;
  const auto one = [](const Tensor& x) { return ones({1, 1}, {x.dtype(), x.device()}); };
  std::vector<Tails> list{
      {"sigmoid", [](auto& x) { return sigmoid(x); }, 4, 0, true},
      {"silu", [](auto& x) { return silu(x); }, 6, -1.278},
      {"silu", [](auto& x) { return swiglu(x, ones_like(x.detach())); }, 6, -1.278},
      {"softplus", [](auto& x) { return softplus(x, 1, 1000); }},
      {"elu", [](auto& x) { return elu(x); }},
      {"tanh", [](auto& x) { return tanh(x); }, 4, 0, true},
      {"erf", [](auto& x) { return erf(x); }, 8},
      {"expm1", [](auto& x) { return expm1(x); }, 4, 0, true},
      {"gelu_erf", [](auto& x) { return gelu(x, Gelu::erf); }, 16, -0.752},
      {"gelu_tanh", [](auto& x) { return gelu(x, Gelu::tanh); }, 16, -0.752, false, 3},
      {"gelu_tanh", [one](auto& x) { return gelu_linear(x.unsqueeze(1), one(x)).squeeze(1); }, 16,
       -0.752, false, 3},
      {"gelu_tanh",
       [one](auto& x) { return mlp(x.unsqueeze(1), one(x), {}, one(x), {}).squeeze(1); }, 16,
       -0.752, false, 3},
      {"smooth_l1", [none](auto& x) { return smooth_l1_loss(x, zeros_like(x.detach()), none); }},
      {"mse", [none](auto& x) { return mse_loss(x, zeros_like(x.detach()), none); }},
      {"kl", [none](auto& p) { return kl_div(full_like(p.detach(), -3), p, none); }, 4, 0.018}};
  for (const auto& [name, t] :
       {std::pair{"logits_0", 0.0}, {"logits_1", 1.0}, {"logits_quarter", 0.25}})
    list.push_back({name,
                    [t = t, none](auto& x) {
                      return binary_cross_entropy_with_logits(x, full_like(x, t), none);
                    },
                    8, t == 0.25 ? -1.0986 : 0});
  for (const auto& [name, t] : {std::pair{"p_0", 0.0}, {"p_1", 1.0}})
    list.push_back(
        {name, [t = t, none](auto& p) { return binary_cross_entropy(p, full_like(p, t), none); }});
  for (const auto& [name, target] : {std::pair{"classes_right", 0.0}, {"classes_wrong", 1.0}}) {
    const auto fused = [](const Tensor& x, const Tensor& ids) {
      return cross_entropy(x, ids, -100, Reduction::none);
    };
    const auto two = [](const Tensor& x, const Tensor& ids) {
      return nll_loss(log_softmax(x), ids, {.reduction = Reduction::none});
    };
    const auto other_dim = [](const Tensor& x, const Tensor& ids) {
      return nll_loss(log_softmax(x.T(), 0), ids, {.reduction = Reduction::none, .dim = 0});
    };
    const auto weighted = [](const Tensor& x, const Tensor& ids) {
      return cross_entropy(
          x.T(), ids, {.weight = ones_like(x.detach()[0]), .reduction = Reduction::none, .dim = 0});
    };
    list.push_back({name, of_classes(target, fused), 12});
    list.push_back({name, [target = target](auto& x) { return by_head(x, target); }, 12});
    for (const int64_t more : {0, 37}) {
      list.push_back({name, of_classes(target, two, more), 12, 0, true});
      if (on_cpu) list.push_back({name, of_classes(target, other_dim, more), 12, 0, true});
      list.push_back({name, of_classes(target, weighted, more), 12});
    }
  }
  if (on_cpu)  // exp(x - y), whose argument has the rounding of x
    list.push_back({"softplus",
                    [](auto& x) {
                      return logsumexp(stack({x, zeros_like(x.detach())}), {0});
                    },
                    100});
  return list;
}

struct Point {
  double x, y, dx;
};
std::map<std::string, std::vector<Point>> tails_fixture() {
  std::map<std::string, std::vector<Point>> lines;
  std::ifstream file(golden("tails.txt"));
  const auto number = [](const std::string& s) { return std::strtod(s.c_str(), nullptr); };
  std::string name, x, y, dx;
  while (file >> name >> x >> y >> dx) lines[name].push_back({number(x), number(y), number(dx)});
  return lines;
}

void expect_tails(const Tails& op, const std::vector<Point>& fixture, DType dtype) {
  const double last = dtype == f64   ? 0x1p-53
                      : dtype == f32 ? 0x1p-24
                                     : 0x1p-9,
               least = dtype == f64 ? 1e-307 : 1.2e-38, far = dtype == f64 ? 690 : 80;
  std::vector<Point> right;
  std::vector<double> at;
  for (const Point& point : fixture) {
    if (std::fabs(point.x) > far || std::fabs(point.y) > 3e38) continue;
    right.push_back(point);
    at.push_back(point.x);
  }
  const Tensor x = from_vector(at).to(dtype).requires_grad_(), y = op.f(x);
  const auto values = y.tolist(), slopes = grad({y}, {x}, {ones_like(y.detach())})[0].tolist();
  ASSERT_EQ(x.tolist(), at) << "the fixture's points are not exact";
  for (size_t i = 0; i < at.size(); ++i) {
    const bool loose = dtype == f64 && op.to_in_f64 != 0 && at[i] < -op.to_in_f64;
    const double most = (loose ? 1000 : op.most) * last;
    const auto check = [&](double got, double expected, double unit, const char* what) {
      EXPECT_LE(std::fabs(got - expected), most * unit + least)
          << op.name << " in " << name_of(dtype) << " at " << at[i] << ": " << what << " " << got
          << " for " << expected;
    };
    check(values[i], right[i].y, std::fabs(right[i].y), "value");
    const bool crossing = op.crossing != 0 && std::fabs(at[i] - op.crossing) < 1.5;
    check(slopes[i], right[i].dx,
          std::max(std::fabs(right[i].dx), op.of_one  ? 1
                                           : crossing ? 0.1
                                                      : 0.0),
          "gradient");
  }
}

TEST(Pointwise, TailsKeepTheirDigits) {
  const auto fixture = tails_fixture();
  for (const Tails& op : tails()) {
    ASSERT_TRUE(fixture.count(op.name)) << op.name;
    for (const DType dtype : {f32, f64, bf16}) expect_tails(op, fixture.at(op.name), dtype);
  }
  // beta x is not rounded to bf16.
  const Tensor x = tensor({-19.875, -7.0, 0.3}, bf16).requires_grad_();
  const Tensor wide = x.detach().to(f32).requires_grad_();
  const Tensor y = softplus(x, 3), right = softplus(wide, 3);
  EXPECT_NE(y.to_string().find("grad_fn=<SoftplusBackward0>"), std::string::npos) << y;
  EXPECT_TRUE(equal(y, right.to(bf16))) << y << right;
  const Tensor one = ones_like(right.detach());
  EXPECT_TRUE(equal(grad({y}, {x}, {one.to(bf16)})[0], grad({right}, {wide}, {one})[0].to(bf16)));
}

// Second derivatives in both tails, against 50 digits; the first has the same bits if it will be
// differentiated.
TEST(Pointwise, GeluKeepsItsDigitsTwice) {
  const std::vector<double> at{-9, -6, -4, -1, 0.5, 4, 6, 9};
  const std::vector<std::pair<Gelu, std::vector<double>>> right{
      {Gelu::erf,
       {-8.1210211216184427e-17, -2.0658001689399171e-7, -0.0018736231607083949,
        0.24197072451914335, 0.61611432183752409, -0.0018736231607083949, -2.0658001689399171e-7,
        -8.1210211216184427e-17}},
      {Gelu::tanh,
       {-4.6839285778142382e-26, -6.8242472741571894e-9, -0.0014740596637653364,
        0.24214819798377295, 0.61550689511598489, -0.0014740596637653364, -6.8242472741571894e-9,
        -4.6839285778142382e-26}}};
  const auto by_linear = [](const Tensor& x) {
    const Tensor one = ones({1, 1}, {x.dtype(), x.device()});
    return cat({gelu_linear(x.unsqueeze(1), one), mlp(x.unsqueeze(1), one, {}, one, {})}, 1);
  };
  for (const DType dtype : {f32, f64, bf16}) {
    const double most = dtype == f64 ? 1e-13 : dtype == f32 ? 1e-5 : 0x1p-7;
    const Tensor h = from_vector(at).to(dtype).requires_grad_(), both = by_linear(h);
    for (int64_t k = 0; k < 2; ++k) {
      const Tensor sum_of = sum(both.select(1, k));
      const Tensor first = grad({sum_of}, {h}, {}, true, true)[0];
      EXPECT_TRUE(allclose(first, grad({sum_of}, {h}, {}, true)[0], most, 0)) << first;
      const auto got = grad({sum(first)}, {h}, {}, true)[0].tolist();
      for (size_t i = 0; i < at.size(); ++i)
        EXPECT_NEAR(got[i], right[1].second[i], most * std::fabs(right[1].second[i]))
            << (k ? "mlp " : "gelu_linear ") << name_of(dtype) << at[i];
    }
    for (const auto& [form, second] : right) {
      const Tensor x = from_vector(at).to(dtype).requires_grad_(), y = gelu(x, form);
      const Tensor one = ones_like(y.detach()), plain = grad({y}, {x}, {one}, true)[0];
      const Tensor first = grad({y}, {x}, {one}, true, true)[0];
      EXPECT_TRUE(equal(first, plain)) << first << plain;
      const auto got = grad({first}, {x}, {one})[0].tolist();
      for (size_t i = 0; i < at.size(); ++i)
        EXPECT_NEAR(got[i], second[i], most * std::fabs(second[i])) << name_of(dtype) << at[i];
    }
  }
  EXPECT_EQ(gelu(tensor({-1e200, -1.7e308}, f64)).tolist(), (std::vector<double>{0, 0}));
}

// Powers of x overflow there, and the derivatives are at their limits.
TEST(Pointwise, GeluOfHugeNumbersHasDerivatives) {
  for (const DType dtype : {f32, bf16, f64}) {
    const double huge = dtype == f64 ? 1e200 : 1e20;
    for (const Gelu form : {Gelu::erf, Gelu::tanh}) {
      const Tensor x =
          tensor({-huge, -1e14, -1e8, -2e3, 2e3, 1e8, 1e14, huge}, dtype).requires_grad_();
      const Tensor y = gelu(x, form), first = grad({sum(y)}, {x}, {}, true, true)[0];
      EXPECT_EQ(first.tolist(), (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1})) << name_of(dtype);
      EXPECT_EQ(grad({sum(first)}, {x})[0].tolist(), std::vector<double>(8, 0)) << name_of(dtype);
      EXPECT_EQ(relu(y).tolist(), relu(x).tolist());
    }
  }
}

// As PyTorch 2.15 gives them.
TEST(Pointwise, GradientsAtNaNAndInfinity) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto slopes = [](const std::vector<double>& at, DType dtype, auto&& f) {
    const Tensor x = from_vector(at).to(dtype).requires_grad_();
    const Tensor y = f(x);
    return grad({y}, {x}, {ones_like(y.detach())})[0];
  };
  std::vector<double> many(70, nan);  // more than a vector
  for (const DType dtype : {f32, f64, bf16}) {
    expect_values(slopes({nan, inf, -inf, 0}, dtype, [](auto& x) { return elu(x); }),
                  {nan, 1, 0, 1});
    expect_values(slopes(many, dtype, [](auto& x) { return elu(x, 0.7); }), many);
    for (const double p : {inf, -inf}) {
      const auto norms = [p](auto& x) { return norm(x, p); };
      expect_values(slopes({1, nan, -2}, dtype, norms), {0, 0, 0});
      expect_values(slopes({-inf, 3, inf}, dtype, norms),
                    p > 0 ? std::vector<double>{-0.5, 0, 0.5} : std::vector<double>{0, 1, 0});
    }
    if (dtype == bf16) continue;
    const Tensor x = tensor({nan, inf, -1.0, 30.0}, dtype).requires_grad_();
    const Tensor first = grad({softplus(x)}, {x}, {ones_like(x.detach())}, true, true)[0];
    expect_values(grad({sum(first)}, {x})[0], {nan, 0, 0.19661193, 0});
  }
  // b's gradient is -floor(a / b), and a - (a mod b) overflows.
  const Tensor a = tensor({-3.4e38, 5.0, nan, inf, -1.0}, f32),
               b = tensor({1e38, nan, 2.0, 2.0, inf}, f32).requires_grad_();
  expect_values(grad({remainder(a, b)}, {b}, {ones_like(a)})[0], {4, nan, nan, nan, 1});
}

TEST(Compare, NaNIsUnequalToEverything) {
  using V = std::vector<bool>;
  const Tensor a = tensor({1.0, 2.0, nan}), b = tensor({1.0, 3.0, nan});
  EXPECT_EQ(eq(a, b).tolist<bool>(), (V{true, false, false}));
  EXPECT_EQ(ne(a, b).tolist<bool>(), (V{false, true, true}));
  EXPECT_EQ(lt(a, b).tolist<bool>(), (V{false, true, false}));
  EXPECT_EQ(le(a, b).tolist<bool>(), (V{true, true, false}));
  EXPECT_EQ(gt(b, a).tolist<bool>(), (V{false, true, false}));
  EXPECT_EQ(ge(b, a).tolist<bool>(), (V{true, true, false}));
  EXPECT_EQ((a <= 1.5).tolist<bool>(), (V{true, false, false}));
  EXPECT_EQ(isnan(a).tolist<bool>(), (V{false, false, true}));
  EXPECT_EQ(isfinite(tensor({1.0, inf, -inf, nan})).tolist<bool>(), (V{true, false, false, false}));
  EXPECT_EQ(isfinite(tensor({1, 2})).tolist<bool>(), (V{true, true}));
}

TEST(Compare, LargeIntegersExactly) {
  const Tensor a = tensor({(1LL << 53) + 1}), b = tensor({1LL << 53});
  EXPECT_FALSE((a == b).item<bool>());
  EXPECT_TRUE((a > b).item<bool>());
}

// A double cannot hold them, and kernels take numbers as doubles.
TEST(LargeIntegers, AreExactBesideATensor) {
  using V = std::vector<int64_t>;
  const int64_t odd = (1LL << 53) + 1, most = INT64_MAX, least = INT64_MIN;
  const Tensor x = tensor({5, -7});
  const auto list = [](const Tensor& t) { return t.tolist<int64_t>(); };
  EXPECT_EQ(list(clamp(x, 0, most)), (V{5, 0}));
  EXPECT_EQ(list(clamp(x, odd, most)), (V{odd, odd}));
  EXPECT_EQ(list(clamp(tensor({most, least}), -odd, odd)), (V{odd, -odd}));
  EXPECT_EQ(list(clamp(x, None, most)), (V{5, -7}));
  EXPECT_EQ(list(x.clamp_min(odd)), (V{odd, odd}));
  EXPECT_EQ(list(x.clamp_max(-odd)), (V{-odd, -odd}));
  EXPECT_EQ(list(x.clone().clamp_(0, most)), (V{5, 0}));
  EXPECT_EQ(list(x.clone().clamp_max_(most)), (V{5, -7}));
  EXPECT_EQ(list(masked_fill(x, x > 0, most)), (V{most, -7}));
  EXPECT_EQ(list(x.clone().masked_fill_(x < 0, odd)), (V{5, odd}));
  EXPECT_EQ(list(maximum(x, most)), (V{most, most}));
  EXPECT_EQ(list(x.clone().add_(odd)), (V{odd + 5, odd - 7}));
  EXPECT_EQ(list(x.clone().fill_(most)), (V{most, most}));
  EXPECT_EQ(clamp(x.to(f64), 0, most).tolist(), (std::vector<double>{5, 0}));
}

TEST(LargeIntegers, ArangeCountsExactly) {
  using V = std::vector<int64_t>;
  const int64_t odd = (1LL << 53) + 1, big = 1LL << 60, most = INT64_MAX, least = INT64_MIN;
  const auto list = [](const Tensor& t) { return t.tolist<int64_t>(); };
  EXPECT_EQ(list(arange(odd, odd + 3)), (V{odd, odd + 1, odd + 2}));
  EXPECT_EQ(list(arange(big, big + 3)), (V{big, big + 1, big + 2}));
  EXPECT_EQ(list(arange(odd, odd - 6, -2)), (V{odd, odd - 2, odd - 4}));
  EXPECT_EQ(list(arange(most - 2, most)), (V{most - 2, most - 1}));
  EXPECT_EQ(list(arange(least, least + 3, 2)), (V{least, least + 2}));
  EXPECT_EQ(list(arange(0, most, most / 2)), (V{0, most / 2, most - 1}));
  EXPECT_EQ(arange(odd, odd).numel(), 0);
  EXPECT_EQ(error_of([&] { arange(odd, odd - 1); }),
            "arange: a step of 1 never gets from 9007199254740993 to 9007199254740992");
  EXPECT_TRUE(error_of([&] { arange(least, most); }).ends_with(" elements are too many"));
}

TEST(Compare, IscloseAsPyTorch) {
  const Tensor a = tensor({1.0, inf, nan, 0.0, inf, 1.0}),
               b = tensor({1.000005, inf, nan, 1e-9, -inf, 1.1});
  using V = std::vector<bool>;
  EXPECT_EQ(isclose(a, b).tolist<bool>(), (V{true, true, false, true, false, false}));
  EXPECT_EQ(isclose(a, b, 0, 0.2, true).tolist<bool>(), (V{true, true, true, true, false, true}));
  EXPECT_EQ(isclose(tensor({100, 3}), tensor({101, 3}), 0.01).tolist<bool>(), (V{true, true}));
  const int64_t least = std::numeric_limits<int64_t>::min(), odd = (int64_t{1} << 53) + 1;
  const Tensor far = tensor({least, odd}), near = tensor({int64_t{0}, odd - 1});
  EXPECT_EQ(isclose(far, near).tolist<bool>(), (V{false, true}));  // the distance is no int64
  EXPECT_EQ(isclose(far, near, 0, 0, true).tolist<bool>(), (V{false, false}));
  EXPECT_TRUE(allclose(ones({2, 3}), ones({3}) + 1e-7));
  EXPECT_FALSE(allclose(ones({2, 3}), ones({3}) + 1e-3));
  EXPECT_FALSE(allclose(tensor({nan}), tensor({nan})));
  EXPECT_TRUE(allclose(tensor({nan}), tensor({nan}), 1e-5, 1e-8, true));
  EXPECT_TRUE(allclose(ones({0}), ones({0})));
  EXPECT_TRUE(allclose(tensor({1.0, inf}), tensor({1.0, inf}), 0, 0));
  EXPECT_EQ(
      isclose(tensor({nan, nan, 1.0}), tensor({nan, 1.0, nan}), 1e-5, 1e-8, true).tolist<bool>(),
      (V{true, false, false}));
}

TEST(Compare, EqualLooksAtShapesToo) {
  EXPECT_TRUE(equal(ones({2, 3}), ones({3}).expand({2, 3})));
  EXPECT_FALSE(equal(ones({2, 3}), ones({3})));
  EXPECT_FALSE(equal(ones({2}), tensor({1.0, 2.0})));
  EXPECT_TRUE(equal(ones({2}), ones({2}, i64)));
  EXPECT_FALSE(equal(tensor({nan}), tensor({nan})));
  EXPECT_TRUE(equal(ones({0, 3}), ones({0, 3})));
}

TEST(Compare, RecordsNothing) {
  Tensor x = ones({2});
  x.requires_grad_();
  EXPECT_FALSE((x < 2).requires_grad());
  EXPECT_FALSE(isclose(x, x * 2).requires_grad());
  EXPECT_EQ(Node::live, 0);
}

// ---- errors

// As of fmod, which is exact, for quotients small and large, and numbers of both signs.
TEST(Pointwise, RemaindersAreExact) {
  const auto expected = [](double a, double b) {
    const double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  };
  manual_seed(5);
  for (const DType dtype : {f32, f64}) {
    std::vector<Tensor> as, bs;
    for (const double scale : {1.0, 1e3, 1e8, 1e17, 1e30}) {
      as.push_back(randn({2000}, dtype) * scale);
      bs.push_back(randn({2000}, dtype));
      as.push_back(bs.back() * trunc(as.back()));  // near multiples, or exact ones
      bs.push_back(bs.back());
    }
    const double inf = INFINITY;
    for (const auto& [a, b] : {std::pair{0.0, 3.0},
                               {-0.0, 3.0},
                               {-4.0, 2.0},
                               {4.0, -2.0},
                               {1.0, 0.0},
                               {inf, 2.0},
                               {2.0, inf},
                               {-2.0, inf},
                               {NAN, 1.0},
                               {1.0, NAN},
                               {1e-40, 3e-41},
                               {-1e-40, 3e-41},
                               {3e38, 1e-38},
                               {-1e-30, 1.0}}) {
      as.push_back(full({1}, a, dtype));
      bs.push_back(full({1}, b, dtype));
    }
    const Tensor a = cat(as), b = cat(bs);
    const auto results = (a % b).tolist(), numerators = a.tolist(), denominators = b.tolist();
    for (size_t i = 0; i < results.size(); ++i) {
      double exact = expected(numerators[i], denominators[i]);
      if (dtype == f32) exact = static_cast<float>(exact);
      const bool same = results[i] == exact && std::signbit(results[i]) == std::signbit(exact);
      ASSERT_TRUE(same || (std::isnan(exact) && std::isnan(results[i])))
          << numerators[i] << " % " << denominators[i] << ": " << results[i] << ", not " << exact;
    }
    EXPECT_EQ((as[0] % 0.7).tolist(), (as[0] % full_like(as[0], 0.7)).tolist());
  }
}

// A result has its inputs' order in memory, as in PyTorch.
TEST(Pointwise, ResultsLieAsTheirInputsDo) {
  const Tensor x = randn({2, 3, 4}), y = x.permute({2, 0, 1}), z = randn({4, 2, 3});
  for (const Tensor& result :
       {exp(y), y + z, y * 2, where(y > 0, y, z), leaky_relu(y), y < z, masked_fill(y, y < z, 0),
        clamp(y, -1, 1), pow(y, 3), y.clone(), y.to(f64)})
    EXPECT_EQ(result.strides(), y.strides());
  EXPECT_TRUE(y.contiguous().is_contiguous());
  EXPECT_EQ(y.clone().tolist(), y.contiguous().tolist());
  for (const Tensor& result : {z + y, exp(expand(randn({2, 1}), {2, 3}))})
    EXPECT_TRUE(result.is_contiguous());
  // Parts of them, broadcast and expanded: by PyTorch 2.15.
  EXPECT_EQ(exp(y.narrow(0, 0, 2)).strides(), (Shape{1, 6, 2}));
  EXPECT_EQ((y + randn({5, 4, 2, 3})).strides(), (Shape{24, 1, 12, 4}));
  EXPECT_EQ((randn({2, 1}) + y).strides(), (Shape{1, 12, 4}));
  EXPECT_EQ((randn({4, 3}) + x.permute({0, 2, 1})).strides(), (Shape{12, 3, 1}));
  EXPECT_EQ(exp(y).tolist(), exp(y.contiguous()).tolist());
  EXPECT_EQ((y + z).tolist(), (y.contiguous() + z).tolist());
  const Tensor leaf = x.detach().requires_grad_();
  sum(exp(leaf.permute({2, 0, 1})) * z).backward();
  EXPECT_EQ(leaf.grad().tolist(), (exp(x) * z.permute({1, 2, 0})).tolist());
}

// A view of `shape` that lies in memory in some way: in order, with dimensions exchanged, with
// gaps, or repeated.
Tensor some_view(std::mt19937& random, const Shape& shape, DType dtype) {
  const auto chance = [&](uint32_t one_in) { return random() % one_in == 0; };
  Shape sizes = shape;
  const int64_t a = random() % 3, b = random() % 3, gap = random() % 3, once = random() % 3;
  const bool gaps = chance(2), repeated = chance(3);
  if (repeated) sizes[once] = sizes[chance(2) ? 0 : once] = 1;
  if (gaps) sizes[gap] *= 2;
  std::swap(sizes[a], sizes[b]);
  Tensor x = (randn(sizes, f64) * 3).to(dtype).transpose(a, b);
  if (gaps) x = slice(x, gap, 0, x.size(gap), 2);
  return repeated ? x.expand(shape) : x;
}

// Chunks, conversions, numbers beside tensors and short rows change no bit.
TEST(Pointwise, EveryLayoutGivesTheBitsOfContiguousMemory) {
  std::mt19937 random(7);
  using Op = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<Op> ops = {
      [](auto& a, auto& b) { return a + b; }, [](auto& a, auto& b) { return a * b - 2; },
      [](auto& a, auto& b) { return maximum(a, b) + (a < b).to(a.dtype()); },
      [](auto& a, auto& b) { return where(a >= b, a, 0).to(f32); },
      [](auto& a, auto& b) { return masked_fill(a, logical_or(a == b, b > 1), 2).to(bf16); }};
  const std::vector<std::vector<DType>> dtypes = {{f32, f32}, {bf16, bf16}, {f32, bf16},
                                                  {f64, f64}, {i64, i64},   {bf16, f32}};
  const int64_t lengths[] = {1, 2, 3, 7, 16, 31, 33, 64, 65, 70};
  for (int round = 0; round < 120; ++round) {
    const auto length = [&] { return lengths[random() % std::size(lengths)]; };
    const Shape shape{length(), length(), length()};
    const auto& types = dtypes[random() % dtypes.size()];
    const Tensor a = some_view(random, shape, types[0]), b = some_view(random, shape, types[1]);
    const size_t op = random() % ops.size();
    SCOPED_TRACE(::testing::Message() << shape << a.strides() << b.strides() << types[0] << " "
                                      << types[1] << ", op " << op);
    EXPECT_TRUE(equal(ops[op](a, b), ops[op](a.contiguous(), b.contiguous())));
    EXPECT_TRUE(equal(a.to(f64).to(f32), a.contiguous().to(f64).to(f32)));
  }
}

TEST(Pointwise, ErrorTexts) {
  const Tensor x = ones({2, 3}), b = ones({2}, boolean), i = ones({2}, i64);
  EXPECT_EQ(error_of([&] { x + ones({4}); }), "add: shapes (2, 3) and (4,) do not broadcast");
  EXPECT_EQ(error_of([&] { maximum(x, ones({4})); }),
            "maximum: shapes (2, 3) and (4,) do not broadcast");
  EXPECT_EQ(error_of([&] { (void)(x < ones({4})); }),
            "lt: shapes (2, 3) and (4,) do not broadcast");
  EXPECT_EQ(error_of([&] { b - b; }),
            "sub: bool tensors cannot be subtracted; use logical_xor, or convert with to(i64)");
  EXPECT_EQ(error_of([&] { -b; }), "neg: expected a floating dtype or int64, got bool");
  EXPECT_EQ(error_of([&] { gelu(i); }), "gelu: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { pow(i, -1); }),
            "pow: expected an exponent of 0 or more for int64, got -1; convert the tensor to a "
            "floating dtype first");
  EXPECT_EQ(error_of([&] { clamp(x, std::nullopt, std::nullopt); }),
            "clamp: expected a min or a max, got neither");
  EXPECT_EQ(error_of([&] { where(x, x, x); }), "where: expected a bool condition, got float32");
  EXPECT_EQ(error_of([&] { where(b, x, x); }), "where: shapes (2,) and (2, 3) do not broadcast");
  EXPECT_EQ(error_of([&] { masked_fill(x, x, 0); }),
            "masked_fill: expected a bool mask, got float32");
  EXPECT_EQ(error_of([&] { masked_fill(i, b, 0.5); }), "(no error)");
  EXPECT_EQ(error_of([&] { isclose(x, x, -1); }),
            "isclose: expected tolerances of 0 or more, got rtol -1 and atol 1e-08");
}

}  // namespace
}  // namespace ink
