// The row ops (softmax, the norms, cross entropy, embedding) against PyTorch's numbers, on
// infinities and NaN, at the edges of their accuracy, and their error texts.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Values = std::vector<double>;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

void expect_near(const Tensor& y, const Values& expected, double tolerance = 1e-12) {
  const Values values = y.tolist();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << i << ": " << values[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(values[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(values[i], expected[i], tolerance) << i;
    }
  }
}

Tensor x23() { return tensor({{1, 2, 4}, {-1, 0.5, 0}}, f64).requires_grad_(); }
Tensor dy23() { return tensor({{1, -2, 3}, {0.5, 1, 2}}, f64); }

// n values in [-1, 1) without a pattern.
Tensor numbers(const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  uint64_t state = 1;
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63;
  }
  return from_vector(values, shape);
}

TEST(Softmax, PyTorchsNumbers) {
  const Tensor x = x23();
  const Tensor y = softmax(x);
  expect_near(y, {0.04201006613406605, 0.11419519938459449, 0.8437947344813395, 0.12195165230972885,
                  0.5465493872661796, 0.3314989604240915});
  expect_near(grad({y}, {x}, {dy23()})[0],
              {-0.05650370156325652, -0.4961785833538567, 0.5526822849171132, -0.0939665693670033,
               -0.14785425327617252, 0.24182082264317578});
  expect_near(grad({softmax(x, 0)}, {x}, {dy23()})[0],
              {0.05249679270175336, -0.44743935621099856, 0.01766270621329089, -0.05249679270175324,
               0.4474393562109985, -0.017662706213291118});
}

TEST(LogSoftmax, PyTorchsNumbers) {
  const Tensor x = x23();
  const Tensor y = log_softmax(x);
  expect_near(y, {-3.1698460195562856, -2.1698460195562856, -0.16984601955628567,
                  -2.1041306053367284, -0.6041306053367284, -1.1041306053367284});
  expect_near(grad({y}, {x}, {dy23()})[0],
              {0.9159798677318679, -2.228390398769189, 1.312410531037321, 0.07316921691594903,
               -0.9129228554316287, 0.8397536385156797});
}

TEST(Softmax, InfinitiesAndNanAsPyTorch) {
  const Tensor x = tensor({{-inf, -inf}, {0.0, -inf}, {inf, 0.0}, {nan, 0.0}, {inf, -inf}});
  for (DType dtype : {f32, f64, bf16}) {
    expect_near(softmax(x.to(dtype)), {nan, nan, 1, 0, nan, nan, nan, nan, nan, nan});
    expect_near(log_softmax(x.to(dtype)), {nan, nan, 0, -inf, nan, nan, nan, nan, nan, nan});
  }
  const Tensor masked = tensor({0.0, -inf, 1.0}).requires_grad_();
  const Tensor dx = grad({softmax(masked)}, {masked}, {tensor({1.0, 5.0, 0.0})})[0];
  expect_near(dx, {0.19661193, 0, -0.19661193}, 1e-6);  // a masked place gets no gradient, not NaN
}

TEST(Softmax, ShiftsDoNotOverflow) {
  expect_near(softmax(tensor({1000.0, 1000.0, -1000.0}, f32)), {0.5, 0.5, 0});
  expect_near(log_softmax(tensor({1000.0, 1000.0, -1000.0}, f32)),
              {-std::log(2), -std::log(2), -2000 - std::log(2)}, 1e-4);
}

TEST(Softmax, LongFloatRowsSumToOne) {
  const Tensor y = softmax(numbers({2, 200003}).to(f32));
  const Tensor wide = sum(y.to(f64), {-1});
  expect_near(wide, {1, 1}, 2e-7);
}

// Half a unit in the last place from the exact value; rounded twice, many are farther away.
TEST(Softmax, Bf16IsRoundedOnce) {
  const Tensor x = (numbers({61, 67}) * 3).to(bf16);
  const Values got = softmax(x).tolist(), exact = softmax(x.to(f64)).tolist();
  for (size_t i = 0; i < exact.size(); ++i) {
    const double ulp = std::ldexp(1, std::ilogb(exact[i]) - 7);
    ASSERT_LE(std::abs(got[i] - exact[i]), 0.501 * ulp) << i << ": " << exact[i];
  }
}

TEST(LayerNorm, PyTorchsNumbers) {
  const Tensor x = x23(), w = tensor({0.5, -1, 2}, f64).requires_grad_(),
               b = tensor({1, 0, -1}, f64).requires_grad_();
  const Tensor y = layer_norm(x, w, b);
  expect_near(y, {0.46547923427485116, 0.26726038286257453, 1.6726038286257436, 0.33185548559318667,
                  -1.0690312230509016, -0.4654843884745492});
  const Grads g = grad({y}, {x, w, b}, {dy23()});
  expect_near(g[0], {0.11452740111915394, -0.171813436867142, 0.057286035747989406,
                     -1.5749059338099312, -3.149829048037023, 4.7247349818469555});
  expect_near(g[1], {-1.7371860458571113, 1.6035519887760508, 4.5434213544640665});
  expect_near(g[2], {1.5, -1, 5});
}

TEST(LayerNorm, WithoutAWeight) {
  const Tensor x = randn({3, 5}), branch = randn({3, 5}), bias = randn({5});
  EXPECT_EQ(layer_norm(x, {}, bias).tolist(), layer_norm(x, Tensor(), bias).tolist());
  EXPECT_EQ(layer_norm(x, {}, bias, 0.1).tolist(), layer_norm(x, Tensor(), bias, 0.1).tolist());
  EXPECT_EQ(layer_norm(x, {}, {}, 0.1).tolist(), layer_norm(x, Tensor(), {}, 0.1).tolist());
  EXPECT_EQ(layer_norm(x, {}).tolist(), layer_norm(x).tolist());
  EXPECT_EQ(layer_norm(x, {5}, {}, bias).tolist(), layer_norm(x, Tensor(), bias).tolist());
  EXPECT_EQ(layer_norm(x, {3, 5}).shape(), x.shape());
  EXPECT_EQ(add_layer_norm(x, branch, {}, bias).second.shape(), x.shape());
  EXPECT_EQ(group_norm(x, 1, {}, bias).shape(), x.shape());
  EXPECT_EQ(rms_norm(x, {}, 0.1).shape(), x.shape());
}

TEST(AddLayerNorm, TheBitsOfTheSumAndItsNorm) {
  for (const DType dtype : {f32, bf16}) {
    const auto leaf = [&](const Shape& shape) { return numbers(shape).to(dtype).requires_grad_(); };
    const Tensor x = leaf({70, 33}), branch = flip(x.detach(), {0}).requires_grad_();
    const Tensor w = numbers({33}).to(f32).requires_grad_(), b = w.detach().requires_grad_();
    const Tensor ds = numbers({70, 33}).to(dtype), dy = exp(ds) * 0.1;
    const auto [s, y] = add_layer_norm(x, branch, w, b);
    const Tensor sum = x + branch, norm = layer_norm(sum, w, b);
    EXPECT_EQ(s.tolist(), sum.tolist());
    EXPECT_EQ(y.tolist(), norm.tolist());
    EXPECT_EQ(y.dtype(), dtype);
    const Grads fused = grad({s * 3, y}, {x, branch, w, b}, {ds, dy});
    const Grads steps = grad({sum * 3, norm}, {x, branch, w, b}, {ds, dy});
    for (size_t i = 0; i < fused.size(); ++i) EXPECT_EQ(fused[i].tolist(), steps[i].tolist()) << i;
  }
}

TEST(AddRmsNorm, TheBitsOfTheSumAndItsNorm) {
  for (const DType dtype : {f32, f64, bf16}) {
    const auto leaf = [&](const Shape& shape) { return numbers(shape).to(dtype).requires_grad_(); };
    const Tensor x = leaf({70, 33}), branch = flip(x.detach(), {0}).requires_grad_();
    const Tensor w = numbers({33}).to(dtype == f64 ? f64 : f32).requires_grad_();
    const Tensor ds = numbers({70, 33}).to(dtype), dy = exp(ds) * 0.1;
    const auto [s, y] = add_rms_norm(x, branch, w, 1e-3);
    const Tensor sum = x + branch, norm = rms_norm(sum, w, 1e-3);
    EXPECT_EQ(s.tolist(), sum.tolist());
    EXPECT_EQ(y.tolist(), norm.tolist());
    EXPECT_EQ(y.dtype(), dtype);
    const Grads fused = grad({s * 3, y}, {x, branch, w}, {ds, dy});
    const Grads steps = grad({sum * 3, norm}, {x, branch, w}, {ds, dy});
    for (size_t i = 0; i < fused.size(); ++i) EXPECT_EQ(fused[i].tolist(), steps[i].tolist()) << i;
  }
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of([&] { add_rms_norm(x, zeros({3})); }),
            "add_rms_norm: expected two of one shape, got (2, 3) and (3,)");
  EXPECT_EQ(error_of([&] { add_rms_norm(x, x, zeros({2})); }),
            "add_rms_norm: expected weight of shape (3,) for an input (2, 3), got (2,)");
}

// It may add to the sum's gradient where nobody else holds that.
TEST(AddLayerNorm, AGradientThatTheCallerHoldsIsLeftAlone) {
  const Tensor x = numbers({3, 5}).requires_grad_(), ds = numbers({3, 5}), before = ds.clone();
  const auto [s, y] = add_layer_norm(x, x.detach());
  const Tensor held = grad({s, y}, {x}, {ds, ds})[0];
  EXPECT_EQ(ds.tolist(), before.tolist());
  EXPECT_NE(held.tolist(), before.tolist());
}

TEST(RmsNorm, PyTorchsNumbers) {
  const Tensor x = x23(), w = tensor({0.5, -1, 2}, f64).requires_grad_();
  const Tensor y = rms_norm(x, w);
  expect_near(y, {0.18898222300588385, -0.7559288920235354, 3.0237155680941417, -0.7745957397271533,
                  -0.7745957397271533, 0});
  const Grads g = grad({y}, {x, w}, {dy23()});
  expect_near(g[0], {-0.32396945187413295, -0.2699744577364982, 0.21597997655053902,
                     -0.5422147869786309, -1.0844351510332029, 6.196765917817227});
  expect_near(g[1], {-0.39663129371538564, -0.7372620443199175, 4.5355733521412125});
}

TEST(Norms, InfinitiesAndNanAsPyTorch) {
  const Tensor x = tensor({{inf, 0.0, 1.0}, {nan, 1.0, 2.0}}, f32);
  expect_near(layer_norm(x), {nan, nan, nan, nan, nan, nan});
  expect_near(rms_norm(x), {nan, 0, 0, nan, nan, nan});
  expect_near(layer_norm(full({1, 4}, 3)), {0, 0, 0, 0});
}

// Rows (67 * 4, n) of one number each, 1e-30 to 1e37.
Tensor equal_numbers(int64_t n, DType dtype) {
  Values each;
  for (int power = -30; power < 37; ++power)
    for (const double digits : {1.0, 3.3, 7.1, 9.7}) each.push_back(digits * std::pow(10, power));
  return from_vector(each).unsqueeze(1).expand({static_cast<int64_t>(each.size()), n}).to(dtype);
}

TEST(Norms, OfEqualNumbersNothingIsLeft) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const int64_t n : {3, 100, 769, 2000}) {
      if (n > 1000 && std::getenv("INKLING_TEST_LARGEST") != nullptr) continue;
      const Tensor x = equal_numbers(n, dtype).contiguous().requires_grad_();
      const Tensor none = zeros_like(x.detach()), y = layer_norm(x);
      const auto expect_none = [&](const Tensor& left, const char* what) {
        EXPECT_TRUE(all(left == 0).item<bool>()) << what << " " << name_of(dtype) << " " << n;
      };
      expect_none(y, "layer_norm");
      expect_none(add_layer_norm(x.detach(), none).second, "add_layer_norm");
      expect_none(group_norm(x.detach().unsqueeze(1), 1), "group_norm");
      expect_none(var(x.detach(), {-1}), "var");
      expect_none(std(x.detach(), {-1}), "std");
      // dx = (dy - mean dy) / sqrt(eps)
      const Tensor dy = numbers(x.shape()).to(dtype), wide = dy.to(f64);
      const Tensor dx = (wide - mean(wide, {-1}, true)) / std::sqrt(1e-5);
      const double most = amax(abs(grad({y}, {x}, {dy})[0].to(f64) - dx)).item();
      EXPECT_LT(most, dtype == f64 ? 1e-10 : dtype == f32 ? 1e-3 : 2.0) << n;
    }
  }
}

TEST(Norms, LargeAndTinyNumbersKeepTheirDigits) {
  struct Rows {
    double mean, spread;
  };
  for (const Rows& rows : {Rows{1e4, 1},
                           {1e7, 3},
                           {-1e10, 1e4},
                           {1e18, 1e17},
                           {0, 1e18},
                           {0, 1e30},
                           {0, 1e-4},
                           {0, 1e-30},
                           {1e-20, 1e-21}}) {
    for (const int64_t n : {7, 300, 2000}) {
      const Tensor x = (numbers({5, n}) * rows.spread + rows.mean).to(f32), exact = x.to(f64);
      const Tensor right = layer_norm(exact);
      // The mean is rounded to f32, as in PyTorch.
      const Tensor allowed =
          rsqrt(var(exact, {-1}, 0, true) + 1e-5) * (std::abs(rows.mean) * 0x1p-24) + 5e-6;
      EXPECT_TRUE(all(abs(layer_norm(x).to(f64) - right) <= allowed).item<bool>())
          << rows.mean << " " << rows.spread << " " << n;
      const Tensor error = abs(rms_norm(x).to(f64) - rms_norm(exact));
      EXPECT_LT(amax(error).item(), 5e-6) << rows.mean << " " << rows.spread << " " << n;
    }
  }
}

// One pass of sum x^2 - (sum x)^2 / n would be nothing but rounding here.
TEST(LayerNorm, MeanFarAboveTheDeviation) {
  const Tensor x = numbers({4, 3001}).to(f32) + 10000;
  const Tensor exact = layer_norm(x.to(f64));
  const Tensor error = amax(abs(layer_norm(x).to(f64) - exact));
  EXPECT_LT(error.item(), 2e-3);  // the mean is off by half a unit in the last place, 2^-11
  EXPECT_NEAR(var(layer_norm(x).to(f64), {-1}, 0).tolist()[0], 1, 1e-4);
}

TEST(Norms, WeightsInF32ServeBf16) {
  const Tensor x = numbers({3, 8}).to(bf16).requires_grad_(), w = numbers({8}).to(f32);
  Tensor weight = w.clone().requires_grad_(), bias = w.clone().requires_grad_();
  const Tensor y = layer_norm(x, weight, bias);
  EXPECT_EQ(y.dtype(), bf16);
  sum(y).backward();
  EXPECT_EQ(weight.grad().dtype(), f32);
  EXPECT_EQ(x.grad().dtype(), bf16);
  EXPECT_EQ(rms_norm(x, w).dtype(), bf16);
  const Composed composed;
  EXPECT_EQ(layer_norm(x, weight, bias).dtype(), bf16);
  EXPECT_EQ(rms_norm(x, w).dtype(), bf16);
}

TEST(Norms, WeightGradientsDoNotDependOnTheThreads) {
  const Tensor x = numbers({1000, 96}).to(f32).requires_grad_();
  const Tensor w = ones({96}).requires_grad_(), b = zeros({96}).requires_grad_();
  const Tensor dy = numbers({1000, 96}).to(f32) * x.detach();
  std::vector<Values> runs[3];
  const int threads = omp_get_max_threads();
  for (int n = 1; n <= 3; ++n) {
    omp_set_num_threads(n);
    for (const Tensor& g : grad({layer_norm(x, w, b)}, {x, w, b}, {dy}))
      runs[n - 1].push_back(g.tolist());
    runs[n - 1].push_back(grad({rms_norm(x, w)}, {w}, {dy})[0].tolist());
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(CrossEntropy, PyTorchsNumbers) {
  const Tensor x = x23(), targets = tensor({2, 0});
  const auto check = [&](const Tensor& loss, double value, const Values& dx) {
    expect_near(loss, {value});
    expect_near(grad({loss}, {x})[0], dx);
  };
  check(cross_entropy(x, targets), 1.136988312446507,
        {0.021005033067033024, 0.05709759969229724, -0.07810263275933027, -0.4390241738451356,
         0.2732746936330898, 0.16574948021204575});
  check(cross_entropy(x, targets, -100, Reduction::sum), 2.273976624893014,
        {0.04201006613406605, 0.11419519938459448, -0.15620526551866054, -0.8780483476902712,
         0.5465493872661796, 0.3314989604240915});
  check(cross_entropy(x, tensor({2, -100})), 0.16984601955628567,
        {0.04201006613406605, 0.11419519938459448, -0.15620526551866054, 0, 0, 0});
  const Tensor each = cross_entropy(x, targets, -100, Reduction::none);
  expect_near(each, {0.16984601955628567, 2.1041306053367284});
  expect_near(grad({each}, {x}, {tensor({10, 0}, f64)})[0],
              {0.4201006613406605, 1.1419519938459448, -1.5620526551866054, 0, 0, 0});
}

TEST(BinaryCrossEntropy, PyTorchsNumbers) {
  const Tensor p = tensor({0, 1, 0.5, 0, 0.25}, f64).requires_grad_(),
               t = tensor({0, 1, 0.3, 1, 0.75}, f64).requires_grad_();
  const Tensor losses = binary_cross_entropy(p, t, Reduction::none);
  expect_near(losses, {0, 0, 0.6931471805599453, 100, 1.111641288952863});
  const Grads grads = grad(sum(losses), {p, t});
  expect_near(grads[0] * 1e-12, {0, 0, 0.8e-12, -1 / (1e12 * 1e-12F), -8.0 / 3e12});
  expect_near(grads[1], {inf, -inf, 0, inf, std::log(3)});
  expect_near(binary_cross_entropy(p, t), {20.360957693902563});
  expect_near(binary_cross_entropy(p, t, Reduction::sum), {101.80478846951281});
  const Tensor q = tensor({0.25, 0.5}, f64).requires_grad_(),
               u = tensor({0.75, 0.25}, f64).requires_grad_();
  const Tensor dq =
      grad(binary_cross_entropy(q, u, Reduction::sum), q, {}, true, /*create_graph=*/true)[0];
  expect_near(dq, {-8.0 / 3, 1});
  const Grads second = grad(sum(dq), {q, u});
  expect_near(second[0], {12.4444444444, 4}, 1e-9);
  expect_near(second[1], {-16.0 / 3, -4});
  if (test_device().is_cpu()) {  // nobody waits for a GPU's numbers
    EXPECT_EQ(error_of([] { binary_cross_entropy(tensor({1.5}), tensor({1.0})); }),
              "binary_cross_entropy: expected probabilities in [0, 1]; "
              "binary_cross_entropy_with_logits takes other numbers, before sigmoid");
    EXPECT_EQ(error_of([] { binary_cross_entropy(tensor({0.5}), tensor({2.0})); }),
              "binary_cross_entropy: expected targets in [0, 1]");
  }
  EXPECT_EQ(error_of([] {
              binary_cross_entropy(ones({2, 3}), ones({3}));
            }),
            "binary_cross_entropy: expected targets of shape (2, 3), got (3,)");
}

TEST(CrossEntropy, NothingThatCounts) {
  const Tensor x = x23(), ignored = tensor({-100, -100});
  const Tensor mean = cross_entropy(x, ignored);
  expect_near(mean, {nan});
  expect_near(grad({mean}, {x})[0], {0, 0, 0, 0, 0, 0});
  expect_near(cross_entropy(x, ignored, -100, Reduction::sum), {0});
  expect_near(cross_entropy(zeros({0, 3}), zeros({0}, i64)), {nan});
  expect_near(cross_entropy(zeros({0, 3}), zeros({0}, i64), -100, Reduction::sum), {0});
}

// By the fused op, by its definition, and in a gradient that will be differentiated.
TEST(CrossEntropy, WhatIsIgnoredReachesNobody) {
  const Tensor targets = tensor({-100, 1});
  for (const double hidden : {nan, inf, -inf}) {
    const Tensor x = tensor({{hidden, 0.0}, {0.0, 0.0}}, f64).requires_grad_();
    for (const bool definition : {false, true})
      for (const bool twice : {false, true}) {
        const FlagGuard guard(&Context::composed, definition);
        const Tensor loss = cross_entropy(x, targets, -100, Reduction::mean, 0.5);
        EXPECT_NEAR(loss.item(), std::log(2) + 0.5 * std::log(2) * std::log(2), 1e-12);
        const auto dx = grad({loss}, {x}, {}, twice, twice)[0].tolist();
        EXPECT_EQ((Values{dx[0], dx[1]}), (Values{0, 0})) << definition << twice << hidden;
        EXPECT_TRUE(std::isfinite(dx[2] + dx[3])) << definition << twice << hidden;
      }
  }
}

TEST(CrossEntropy, InfinitiesAndNanAsPyTorch) {
  const Tensor x = tensor({{-inf, -inf}, {0.0, -inf}, {0.0, -inf}, {inf, 0.0}, {nan, 0.0}});
  expect_near(cross_entropy(x, tensor({0, 0, 1, 0, 1}), -100, Reduction::none),
              {nan, 0, inf, nan, nan});
}

// The small share of the others is all of the gradient.
TEST(CrossEntropy, ALikelyTargetHasAGradientStill) {
  const Tensor x = tensor({{0.0, -30.0, -31.0}}, {f32}).requires_grad_();
  cross_entropy(x, tensor({0})).backward();
  const Values got = x.grad().tolist();
  EXPECT_NEAR(got[0] / -(std::exp(-30.0) + std::exp(-31.0)), 1, 1e-5);
  EXPECT_NEAR(got[1] / std::exp(-30.0), 1, 1e-5);
}

TEST(CrossEntropy, ScaledRetainedAndRepeated) {
  const Tensor x = x23(), targets = tensor({2, 0});
  const Tensor loss = cross_entropy(x, targets);
  const Values once = grad({loss}, {x}, {}, true)[0].tolist();
  loss.backward(full({}, 1, f64), true);
  loss.backward(full({}, 0.5, f64), true);
  loss.backward();  // the gradient that the forward pass left behind was not written to
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(x.grad().tolist()[i], 2.5 * once[i], 1e-15);
  EXPECT_EQ(grad({cross_entropy(x, targets)}, {x})[0].tolist(), once);
}

TEST(CrossEntropy, LossOfBf16IsF32) {
  const Tensor x = x23().detach().to(bf16).requires_grad_(), targets = tensor({2, 0});
  const Tensor loss = cross_entropy(x, targets);
  EXPECT_EQ(loss.dtype(), f32);
  expect_near(loss, {1.1369883}, 1e-6);
  EXPECT_EQ(grad({loss}, {x}, {}, true)[0].dtype(), bf16);
  EXPECT_EQ(grad({loss * 2}, {x})[0].dtype(), bf16);
  const Composed composed;
  EXPECT_EQ(cross_entropy(x, targets).dtype(), f32);
}

// Of a gradient that is differentiated again, too, only the result is rounded.
TEST(CrossEntropy, GradientsOfBf16AreRoundedOnce) {
  const Tensor x = (arange(16.0) * 0.7).view({1, 16}).to(bf16).requires_grad_();
  const Tensor wide = x.detach().to(f32).requires_grad_(), target = tensor({3});
  const Tensor expected = grad({cross_entropy(wide, target)}, {wide})[0];
  for (const bool again : {false, true}) {
    const Tensor dx = grad({cross_entropy(x, target)}, {x}, {}, again, again)[0];
    EXPECT_TRUE(allclose(dx.detach().to(f32), expected, 0x1.01p-8, 0)) << again;
  }
}

// As log_softmax's, the slope of the z loss is a probability however large the logits are.
TEST(CrossEntropy, ZLossOfLargeLogitsHasItsGradientAgain) {
  const Tensor x = full({1, 8}, 1.2e8, f32).requires_grad_(), target = tensor({0});
  const auto gradient = [&](bool again) {
    const Tensor loss = cross_entropy(x, target, -100, Reduction::mean, 1);
    return grad({loss}, {x}, {}, again, again)[0].detach();
  };
  EXPECT_TRUE(allclose(gradient(true), gradient(false), 1e-5, 0)) << gradient(true);
}

TEST(LinearCrossEntropy, ChunksHoldFewLogits) {
  const FieldGuard on_cpu(&Context::default_device, cpu_device);  // a GPU's chunks are larger
  const Tensor x = zeros({1000, 2}).requires_grad_(), weight = zeros({50257, 2}).requires_grad_(),
               targets = zeros({1000}, i64);
  const int64_t before = memory_stats().bytes_in_use;
  reset_peak_memory();
  linear_cross_entropy(x, weight, targets).backward();
  EXPECT_LT(memory_stats().peak_bytes_in_use - before, 80'000'000) << "all: 200 MB";
}

TEST(Embedding, RowsAndTheirGradients) {
  Tensor table = tensor({{1, 2}, {3, 4}, {5, 6}}, f64).requires_grad_();
  const Tensor y = embedding(tensor({{2, 0}, {2, 2}}), table);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  expect_near(y, {5, 6, 1, 2, 5, 6, 5, 6});
  const Tensor dy = tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}, f64);
  y.backward(dy, true);
  expect_near(table.grad(), {3, 4, 0, 0, 13, 16});
  const double* memory = table.grad().data<double>();
  y.backward(dy);
  expect_near(table.grad(), {6, 8, 0, 0, 26, 32});
  EXPECT_EQ(table.grad().data<double>(), memory) << "the second gradient is added into the first";
}

TEST(Embedding, GradientsDoNotDependOnTheThreads) {
  const Tensor table = zeros({17, 96}).requires_grad_();
  Values rows(3000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i * i % 17);
  const Tensor ids = from_vector(rows).to(i64);
  const Tensor dy = numbers({3000, 96}).to(f32);
  Values runs[3];
  const int threads = omp_get_max_threads();
  for (int n = 1; n <= 3; ++n) {
    omp_set_num_threads(n);
    runs[n - 1] = grad({embedding(ids, table)}, {table}, {dy})[0].tolist();
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// 1000 times 1/256 on a bf16 table: summed in bf16 it would stop at 1.
TEST(Embedding, Bf16TablesAreSummedInF32) {
  const Tensor table = zeros({2, 1}, bf16).requires_grad_();
  const Tensor y = embedding(zeros({1000}, i64), table);
  expect_near(grad({y}, {table}, {full({1000, 1}, 1.0 / 256, bf16)})[0], {3.90625, 0}, 1e-2);
}

// Pair k of the row at position t times e^(i angle), as complex numbers (Su et al. 2021, eq. 12).
TEST(Rotary, MultipliesPairsByComplexNumbers) {
  manual_seed(1);
  const int64_t T = 3, d = 6, pairs = 2;
  const Tensor x = randn({2, T, d}, f64), angles = randn({T, pairs}, f64);
  for (const bool interleaved : {false, true}) {
    const Tensor y = rotary(x, cos(angles), sin(angles), interleaved);
    for (int64_t row = 0; row < 2 * T; ++row) {
      const auto in = [&](int64_t i) { return x.view({2 * T, d})[row][i].item(); };
      const auto out = [&](int64_t i) { return y.view({2 * T, d})[row][i].item(); };
      for (int64_t k = 0; k < pairs; ++k) {
        const int64_t a = interleaved ? 2 * k : k, b = interleaved ? a + 1 : k + pairs;
        const auto turned =
            std::complex<double>(in(a), in(b)) * std::polar(1.0, angles[row % T][k].item());
        EXPECT_NEAR(out(a), turned.real(), 1e-15);
        EXPECT_NEAR(out(b), turned.imag(), 1e-15);
      }
      for (int64_t i = 2 * pairs; i < d; ++i) EXPECT_EQ(out(i), in(i));  // not in a pair
    }
  }
}

// A score depends on the distance of query and key alone.
TEST(Rotary, ScoresDependOnDistances) {
  manual_seed(2);
  const int64_t T = 5, d = 8;
  const Tensor q = randn({T, d}, f64), k = randn({T, d}, f64);
  const Tensor speeds = pow(10000, arange(d / 2).to(f64) * (-2.0 / d));
  const auto scores = [&](int64_t start, bool interleaved) {
    const Tensor angles = outer((arange(T) + start).to(f64), speeds);
    const Tensor c = cos(angles), s = sin(angles);
    return matmul(rotary(q, c, s, interleaved), rotary(k, c, s, interleaved).transpose(0, 1));
  };
  for (const bool interleaved : {false, true}) {
    EXPECT_TRUE(allclose(scores(0, interleaved), scores(1000, interleaved), 1e-9, 1e-9));
    EXPECT_FALSE(allclose(scores(0, interleaved), matmul(q, k.transpose(0, 1)), 1e-3, 1e-3));
  }
}

// Queries as an attention layer has them: a view of a packed tensor, whose order the result keeps.
TEST(Rotary, KeepsTheOrderInMemory) {
  manual_seed(3);
  const Tensor packed = randn({2, 5, 12}, f32).requires_grad_();
  const Tensor q = packed.narrow(2, 0, 8).view({2, 5, 2, 4}).transpose(1, 2);  // (B, heads, T, d)
  const Tensor angles = randn({5, 2}, f32), y = rotary(q, cos(angles), sin(angles));
  EXPECT_EQ(y.strides(), (Shape{40, 4, 8, 1}));
  const Tensor plain = rotary(q.contiguous(), cos(angles), sin(angles));
  EXPECT_TRUE(equal(y, plain));
  const Tensor windows = arange(6.0, f32).unfold(0, 4, 1);  // rows that overlap
  const Tensor three = angles.narrow(0, 0, 3);
  EXPECT_TRUE(equal(rotary(windows, cos(three), sin(three)),
                    rotary(windows.contiguous(), cos(three), sin(three))));
  const Tensor by_batch = angles.expand({2, 1, 5, 2});
  EXPECT_TRUE(equal(y, rotary(q, cos(by_batch), sin(by_batch))));
  sum(y * y).backward();
  EXPECT_TRUE(allclose(packed.grad(), cat({2 * packed.narrow(2, 0, 8), zeros({2, 5, 4})}, 2)));
}

TEST(Rotary, RefusesTablesThatDoNotFit) {
  const Tensor x = randn({2, 3, 4}), table = randn({3, 2});
  EXPECT_EQ(
      error_of([&] {
        rotary(x, randn({4, 2}), randn({4, 2}));
      }),
      "rotary: tables (4, 2) do not fit x (2, 3, 4); expected one row for each of 3 positions");
  EXPECT_EQ(error_of([&] {
              rotary(x, randn({3, 3}), randn({3, 3}));
            }),
            "rotary: expected tables cos and sin (T, pairs), with at most 2 pairs for x (2, 3, 4), "
            "got (3, 3) and (3, 3)");
  EXPECT_EQ(error_of([&] { rotary(randn({4}), table, table); }),
            "rotary: expected a floating x (..., T, d), got float32 (4,)");
  EXPECT_EQ(error_of([&] {
              rotary(x, randn({3, 2}).requires_grad_(), table);
            }),
            "rotary: cos and sin get no gradient, and one of them requires it; pass its detach()");
}

TEST(Swiglu, IsSiluTimesUp) {
  manual_seed(4);
  const Tensor packed = randn({3, 10}, f64);  // gate and up as views of one product
  const Tensor gate = packed.narrow(1, 0, 5), up = packed.narrow(1, 5, 5);
  EXPECT_TRUE(allclose(swiglu(gate, up), gate * sigmoid(gate) * up, 1e-14, 1e-14));
  for (const int64_t rows : {3, 100, 103}) {  // with and without whole blocks, gate alone, up alone
    const Tensor g = randn({rows, 10}, f64).narrow(1, 0, 5).requires_grad_(),
                 u = randn({5, rows}, f64).transpose(0, 1).requires_grad_(),
                 dy = randn({rows, 5}, f64);
    const Grads both = grad({swiglu(g, u)}, {g, u}, {dy});
    const Grads expected = grad({g * sigmoid(g) * u}, {g, u}, {dy});
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(allclose(both[i], expected[i], 1e-13, 1e-14)) << i;
    EXPECT_TRUE(equal(grad({swiglu(g, u.detach())}, {g}, {dy})[0], both[0]));
    EXPECT_TRUE(equal(grad({swiglu(g.detach(), u)}, {u}, {dy})[0], both[1]));
  }
  EXPECT_EQ(error_of([&] { swiglu(gate, randn({5}, f64)); }),
            "swiglu: expected gate and up of one shape and one floating dtype, got float64 (3, 5) "
            "and float64 (5,)");
  EXPECT_EQ(error_of([&] { swiglu(gate, up.to(f32)); }),
            "swiglu: expected gate and up of one shape and one floating dtype, got float64 (3, 5) "
            "and float32 (3, 5)");
}

TEST(FusedErrors, NameWhatWasExpected) {
  const Tensor x = zeros({2, 3}), scalar = zeros({}), whole = zeros({2, 3}, i64);
  EXPECT_EQ(softmax(scalar).item(), 1);  // a scalar is a line of one
  EXPECT_EQ(error_of([&] { softmax(x, 2); }),
            "softmax: dimension 2 is out of range for shape (2, 3)");
  EXPECT_EQ(error_of([&] { softmax(whole); }), "softmax: expected a floating dtype, got int64");
  EXPECT_EQ(log_softmax(scalar).item(), 0);
  EXPECT_EQ(error_of([&] { log_softmax(whole); }),
            "log_softmax: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { layer_norm(scalar); }),
            "layer_norm: needs at least one dimension, got a scalar");
  EXPECT_EQ(error_of([&] { layer_norm(whole); }),
            "layer_norm: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { layer_norm(x, zeros({2})); }),
            "layer_norm: expected weight of shape (3,) for an input (2, 3), got (2,)");
  EXPECT_EQ(error_of([&] {
              layer_norm(x, Tensor(), zeros({3, 1}));
            }),
            "layer_norm: expected bias of shape (3,) for an input (2, 3), got (3, 1)");
  EXPECT_EQ(error_of([&] { add_layer_norm(x, zeros({3})); }),
            "add_layer_norm: expected two of one shape, got (2, 3) and (3,)");
  EXPECT_EQ(error_of([&] { add_layer_norm(x, whole); }),
            "add_layer_norm: expected floating dtypes, got float32 and int64");
  EXPECT_EQ(error_of([&] { add_layer_norm(scalar, scalar); }),
            "add_layer_norm: needs at least one dimension, got scalars");
  EXPECT_EQ(error_of([&] { rms_norm(scalar); }),
            "rms_norm: needs at least one dimension, got a scalar");
  EXPECT_EQ(error_of([&] { rms_norm(whole); }), "rms_norm: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { rms_norm(x, zeros({2})); }),
            "rms_norm: expected weight of shape (3,) for an input (2, 3), got (2,)");
}

TEST(FusedErrors, WeightsOfAnMlp) {
  const Tensor x = zeros({2, 3}), fc = zeros({6, 3}), proj = zeros({4, 6}), wrong = zeros({4, 5});
  const auto told = [&](const Tensor& first, const Tensor& bias, const Tensor& second,
                        const Tensor& last) {
    const std::string plain = error_of([&] { mlp(x, first, bias, second, last); });
    const Composed composed;
    EXPECT_EQ(error_of([&] { mlp(x, first, bias, second, last); }), plain);
    return plain;
  };
  EXPECT_EQ(told(wrong, {}, proj, {}), "mlp: expected x (..., 5) for weight (4, 5), got (2, 3)");
  EXPECT_EQ(told(fc, zeros({5}), proj, {}), "mlp: expected bias (6,) for weight (6, 3), got (5,)");
  EXPECT_EQ(told(fc, {}, wrong, {}),
            "mlp: expected a proj_weight (out, 6) for fc_weight (6, 3), got (4, 5)");
  EXPECT_EQ(told(fc, {}, proj, zeros({6})), "mlp: expected bias (4,) for weight (4, 6), got (6,)");
  EXPECT_EQ(told(fc, {}, proj.to(f64), {}),
            "mlp: expected one floating dtype, got x float32 and weight float64");
  EXPECT_EQ(error_of([&] { gelu_linear(x, wrong); }),
            "gelu_linear: expected x (..., 5) for weight (4, 5), got (2, 3)");
}

TEST(FusedErrors, IdsAndTargets) {
  const Tensor logits = zeros({2, 2, 65}), table = zeros({65, 4});
  const Tensor ids = tensor({{1, 2}, {64, 70}}), negative = tensor({{1, 2}, {-1, 0}});
  EXPECT_EQ(error_of([&] { cross_entropy(logits, ids); }),
            "cross_entropy: target 70 at position 3 is out of range for 65 classes");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, negative); }),
            "cross_entropy: target -1 at position 2 is out of range for 65 classes");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, zeros({4}, i64)); }),
            "cross_entropy: expected targets of shape (2, 2) for logits (2, 2, 65), got (4,)");
  EXPECT_EQ(
      error_of([] {
        cross_entropy(zeros({2, 5, 3}), zeros({2, 3}, i64));
      }),
      "cross_entropy: expected targets of shape (2, 5) for logits (2, 5, 3), got (2, 3); if the "
      "classes are in dimension 1, pass {.dim = 1}");
  EXPECT_EQ(
      error_of([] {
        nll_loss(zeros({2, 5, 3}), zeros({2, 3}, i64));
      }),
      "nll_loss: expected targets of shape (2, 5) for classes in dimension 2 of (2, 5, 3), got "
      "(2, 3); if the classes are in dimension 1, pass {.dim = 1}");
  EXPECT_EQ(error_of([] { nll_loss(zeros({}), zeros({1}, i64)); }),
            "nll_loss: expected a dimension of classes, got a scalar");
  EXPECT_EQ(error_of([] { cross_entropy(zeros({}), zeros({1}, i64), {.label_smoothing = 0.1}); }),
            "cross_entropy: expected a dimension of classes, got a scalar");
  EXPECT_EQ(error_of([] {
              cross_entropy(zeros({4, 3}), zeros({4, 3}));
            }),
            "cross_entropy: expected targets of shape (4,) for logits (4, 3), got (4, 3); for "
            "probabilities, take -sum(p * log_softmax(x), {-1})");
  EXPECT_NEAR(cross_entropy(zeros({2, 5, 3}), zeros({2, 3}, i64), {.dim = 1}).item(), std::log(5),
              1e-6);
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, zeros({2, 2}));
            }),
            "cross_entropy: expected targets of dtype int64, got float32");
  EXPECT_EQ(error_of([&] { cross_entropy(zeros({}), zeros({}, i64)); }),
            "cross_entropy: logits need at least one dimension, got a scalar");
  EXPECT_EQ(error_of([&] { embedding(ids, table); }),
            "embedding: id 70 at position 3 is out of range for 65 rows");
  EXPECT_EQ(error_of([&] { embedding(negative, table); }),
            "embedding: id -1 at position 2 is out of range for 65 rows");
  EXPECT_EQ(error_of([&] { embedding(zeros({2}), table); }),
            "embedding: expected ids of dtype int64, got float32");
  EXPECT_EQ(error_of([&] { embedding(ids, zeros({65})); }),
            "embedding: expected a weight (rows, columns), got (65,)");
}

}  // namespace
}  // namespace ink
