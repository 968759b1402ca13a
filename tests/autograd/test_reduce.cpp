// Reductions against a plain loop, PyTorch's values on odd cases, and error texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

// n doubles in [-1, 1] without a pattern.
Tensor numbers(int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  uint64_t state = 1;
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63;
  }
  return from_vector(values);
}

// The sum of x over dims by the definition, in row-major order of the kept dimensions.
std::vector<double> plain_sum(const Tensor& x, const Shape& dims) {
  const std::vector<double> values = x.tolist();
  Shape kept = x.shape();
  for (int64_t d : dims) kept[d] = 1;
  const Shape steps = contiguous_strides(kept);
  std::vector<long double> sums(static_cast<size_t>(kept.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0;
    for (int64_t d = x.dim() - 1; d >= 0; --d) {
      if (kept[d] != 1) at += rest % x.size(d) * steps[d];
      rest /= x.size(d);
    }
    sums[static_cast<size_t>(at)] += values[i];
  }
  return {sums.begin(), sums.end()};
}

void expect_near(const Tensor& y, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = y.tolist();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << i;
}

// Every subset of dimensions, of tensors in every order of memory, short and long, with and without
// gaps: the plan takes another way through nearly each.
TEST(Reduce, AgreesWithThePlainLoopInEveryLayout) {
  const std::vector<Shape> shapes{{7},      {1000},       {3, 5, 2},   {2, 40, 33}, {65, 3, 70},
                                  {130, 2}, {70, 2, 257}, {2, 1, 700}, {4, 0, 3},   {30, 5, 9}};
  for (const Shape& shape : shapes) {
    const Tensor wide = numbers(shape.numel() * 2);
    const Tensor plain = wide.alias({shape, contiguous_strides(shape), 0});
    Shape gaps = plain.strides();
    for (int64_t& step : gaps) step *= 2;
    std::vector<Tensor> layouts;
    layouts.push_back(plain);
    layouts.push_back(wide.alias({shape, gaps, 0}));
    for (int64_t d = 1; d < shape.size(); ++d) {
      layouts.push_back(plain.transpose(0, d));
      layouts.push_back(plain.transpose(d - 1, d));
      layouts.push_back(plain.narrow(d, 0, std::min<int64_t>(1, shape[d])).expand(shape));
      layouts.push_back(plain.narrow(0, 0, 1).expand(shape).transpose(0, d));
    }
    for (const Tensor& x : layouts) {
      for (int subset = 1; subset < 1 << x.dim(); ++subset) {
        Shape dims, kept = x.shape(), left;
        for (int64_t d = 0; d < x.dim(); ++d) {
          if (subset >> d & 1) {
            dims.push_back(d - (subset % 3 == 0 ? x.dim() : 0));
            kept[d] = 1;
          } else {
            left.push_back(x.size(d));
          }
        }
        Shape positive = dims;
        for (int64_t& d : positive) d += d < 0 ? x.dim() : 0;
        SCOPED_TRACE(::testing::Message() << x.shape() << x.strides() << dims);
        const auto expected = plain_sum(x, positive);
        EXPECT_EQ(sum(x, dims).shape(), left);
        EXPECT_EQ(sum(x, dims, true).shape(), kept);
        expect_near(sum(x, dims), expected, 1e-14 * static_cast<double>(x.numel() + 100));
        expect_near(sum(x.to(f32), dims), expected, 1e-7 * static_cast<double>(x.numel() + 100));
      }
    }
  }
}

// Every reduction, in one layout where outputs lie side by side, one where each is a run of its
// own, one with gaps, and one with repeated elements: as sum, so all.
TEST(Reduce, AllReductionsAgreeWithTheirDefinition) {
  const Tensor x = numbers(6 * 70 * 45).view({6, 70, 45}), gaps = slice(x, 2, 1, 45, 3);
  const Tensor even = numbers(5 * 9 * 64).view({5, 9, 64});  // wide loads fit its lines
  for (const Tensor& y :
       {x, x.transpose(0, 2), gaps, gaps.narrow(1, 3, 1).expand({6, 70, 15}), even}) {
    for (int64_t d = 0; d < 3; ++d) {
      SCOPED_TRACE(::testing::Message() << y.shape() << y.strides() << d);
      const Tensor lines = y.transpose(d, 2).contiguous();  // the definition reads line by line
      const int64_t n = lines.size(-1);
      const std::vector<double> values = lines.tolist();
      std::vector<double> mean_, prod_, max_, min_, var_, argmax_;
      for (size_t i = 0; i < values.size(); i += static_cast<size_t>(n)) {
        const auto line = values.begin() + static_cast<int64_t>(i);
        mean_.push_back(std::accumulate(line, line + n, 0.0) / static_cast<double>(n));
        prod_.push_back(std::accumulate(line, line + n, 1.0, std::multiplies<>()));
        max_.push_back(*std::max_element(line, line + n));
        min_.push_back(*std::min_element(line, line + n));
        argmax_.push_back(static_cast<double>(std::max_element(line, line + n) - line));
        double squares = 0;
        for (auto v = line; v < line + n; ++v) squares += (*v - mean_.back()) * (*v - mean_.back());
        var_.push_back(squares / static_cast<double>(n - 1));
      }
      const auto back = [&](const Tensor& r) { return r.transpose(d, 2); };
      expect_near(back(mean(y, {d}, true)), mean_, 1e-14);
      expect_near(back(prod(y, {d}, true)), prod_, 1e-14);
      expect_near(back(amax(y, {d}, true)), max_, 0);
      expect_near(back(amin(y, {d}, true)), min_, 0);
      expect_near(back(max(y, d, true).values), max_, 0);
      expect_near(back(argmax(y, d, true)), argmax_, 0);
      expect_near(back(var(y, {d}, 1, true)), var_, 1e-14);
    }
  }
}

// A sum of n floats that rounds at each addition would be off by up to n / 2 ulps.
TEST(Reduce, FloatSumsAreAccurate) {
  const int64_t n = by_device(1 << 22, 1 << 18);
  const Tensor tenths = full({n}, 0.1), columns = full({n / 8, 8}, 0.1);
  const double tenth = static_cast<double>(0.1f);
  EXPECT_FLOAT_EQ(sum(tenths).item<float>(), static_cast<float>(tenth * static_cast<double>(n)));
  EXPECT_FLOAT_EQ(mean(tenths).item<float>(), 0.1f);
  EXPECT_FLOAT_EQ(sum(columns, {0}).tolist<float>()[5],
                  static_cast<float>(tenth * static_cast<double>(n / 8)));
  EXPECT_FLOAT_EQ(cumsum(tenths, 0).tolist<float>().back(),
                  static_cast<float>(tenth * static_cast<double>(n)));
  // 1e8 swallows single floats added to it one by one.
  const Tensor mixed = cat({full({1}, 1e8), ones({1000000})});
  EXPECT_FLOAT_EQ(sum(mixed).item<float>(), 1.01e8f);
  EXPECT_NEAR(var(tenths + 1000).item(), 0, 1e-20);
  EXPECT_NEAR(var(tensor({100000.0, 100001.0, 100002.0})).item(), 1, 1e-9);
}

// f(x) in bf16 against the same in f64: what sums must not round in between. Long rows of numbers
// above 1, whose sums in bf16 would stand still at 256.
TEST(Reduce, Bf16SumsAreInF32) {
  const Tensor x = (numbers(3 * 5000).view({3, 5000}) * 0.5 + 1.5).to(bf16), y = flip(x, {1});
  const Tensor ids = arange(15000, i64) % 7;
  using One = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, One>> ops{
      {"sum", [](auto& a, auto&) { return sum(a, {1}); }},
      {"sum over rows", [](auto& a, auto&) { return sum(a.T().contiguous(), {0}); }},
      {"mean", [](auto& a, auto&) { return mean(a); }},
      {"var", [](auto& a, auto&) { return var(a, {1}); }},
      {"std", [](auto& a, auto&) { return std(a, {1}); }},
      {"norm", [](auto& a, auto&) { return norm(a, 2, {1}); }},
      {"norm 1", [](auto& a, auto&) { return norm(a, 1, {1}); }},
      {"norm 3", [](auto& a, auto&) { return norm(a, 3, {1}); }},
      {"cumsum", [](auto& a, auto&) { return cumsum(a, 1); }},
      {"logsumexp", [](auto& a, auto&) { return logsumexp(a, {1}); }},
      {"softmax", [](auto& a, auto&) { return softmax(a); }},
      {"log_softmax", [](auto& a, auto&) { return log_softmax(a); }},
      {"layer_norm", [](auto& a, auto&) { return layer_norm(a); }},
      {"rms_norm", [](auto& a, auto&) { return rms_norm(a); }},
      {"group_norm", [](auto& a, auto&) { return group_norm(a.unsqueeze(1), 1); }},
      {"matmul", [](auto& a, auto& b) { return matmul(a, b.T()); }},
      {"mse_loss", [](auto& a, auto& b) { return mse_loss(a, b, Reduction::sum); }},
      {"bce", [](auto& a, auto& b) { return binary_cross_entropy_with_logits(a, b); }},
      {"bias gradient",
       [](auto& a, auto&) {
         const Tensor bias = zeros({3}, a.options()).requires_grad_();
         return grad({linear(ones({5000, 1}, a.options()), ones({3, 1}, a.options()), bias)},
                     {bias}, {a.T().contiguous()})[0];
       }},
      {"embedding gradient",
       [&](auto& a, auto&) {
         const Tensor table = zeros({7, 1}, a.options()).requires_grad_();
         return grad({embedding(ids, table)}, {table}, {a.reshape({15000, 1})})[0];
       }},
      {"index_add gradient",
       [&](auto& a, auto&) {
         const Tensor row = zeros({7}, a.options()).requires_grad_();
         return grad({index_select(row, 0, ids)}, {row}, {a.flatten()})[0];
       }},
      {"gradient of expand",
       [](auto& a, auto&) {
         const Tensor one = zeros({3, 1}, a.options()).requires_grad_();
         return grad({expand(one, {3, 5000})}, {one}, {a})[0];
       }},
      {"gradient of a broadcast",
       [](auto& a, auto&) {
         const Tensor one = zeros({3, 1}, a.options()).requires_grad_();
         return grad({one + a}, {one}, {a})[0];
       }},
      {"gradient of unfold",
       [](auto& a, auto&) {
         const Tensor line = zeros({1024}, a.options()).requires_grad_();
         const Tensor windows = unfold(line, 0, 512, 1);
         return grad({windows}, {line}, {full(windows.shape(), 1.25, a.options())})[0];
       }},
      {"gradient of logsumexp",
       [](auto& a, auto&) {
         const Tensor v = (a.narrow(1, 0, 50) * 4).requires_grad_();
         return grad({logsumexp(v, {1})}, {v}, {ones({3}, a.options())})[0];
       }},
  };
  for (const auto& [name, f] : ops) {
    const Tensor got = f(x, y), exact = f(x.to(f64), y.to(f64));
    EXPECT_EQ(got.dtype(), bf16) << name;
    const Tensor error = abs(got.to(f64) - exact) / (abs(exact) + 1e-3);
    EXPECT_LT(amax(error).item(), 0x1.4p-8) << name;
  }
}

TEST(Reduce, NoElementsAsInPyTorch) {
  const Tensor x = zeros({2, 0});
  EXPECT_EQ(sum(x, {1}).tolist(), (std::vector<double>{0, 0}));
  EXPECT_EQ(sum(x).item(), 0);
  EXPECT_EQ(prod(x, {1}).tolist(), (std::vector<double>{1, 1}));
  EXPECT_EQ(any(x, {1}).tolist(), (std::vector<double>{0, 0}));
  EXPECT_EQ(all(x, {1}).tolist(), (std::vector<double>{1, 1}));
  EXPECT_EQ(logsumexp(x, {1}).tolist(), (std::vector<double>{-inf, -inf}));
  for (const Tensor& y : {mean(x, {1}), var(x, {1}), std(x, {1})}) {
    EXPECT_EQ(y.shape(), (Shape{2}));
    for (double v : y.tolist()) EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_TRUE(std::isnan(mean(x).item()));
  EXPECT_EQ(sum(x, {0}).shape(), (Shape{0}));
  EXPECT_EQ(max(zeros({0, 3}), 1).indices.shape(), (Shape{0}));
  EXPECT_EQ(argmax(zeros({0, 3}), 1, true).shape(), (Shape{0, 1}));
  EXPECT_NE(error_of([&] { norm(x, -1, {1}); }), "");
  EXPECT_EQ(norm(x, 0.5, {1}).tolist(), (std::vector<double>{0, 0}));
}

TEST(Reduce, DtypesAsInPyTorch) {
  const Tensor truths = tensor({{true, false}, {true, true}}), counts = tensor({{3, 1}, {1, 2}});
  EXPECT_EQ(sum(truths).dtype(), i64);
  EXPECT_EQ(sum(truths, {0}).tolist(), (std::vector<double>{2, 1}));
  EXPECT_EQ(prod(truths, {1}).tolist(), (std::vector<double>{0, 1}));
  EXPECT_EQ(prod(truths).dtype(), i64);
  EXPECT_EQ(amax(truths, {0}).dtype(), boolean);
  EXPECT_EQ(amin(truths, {1}).tolist(), (std::vector<double>{0, 1}));
  EXPECT_EQ(max(counts, 1).values.dtype(), i64);
  EXPECT_EQ(max(counts, 1).values.tolist(), (std::vector<double>{3, 2}));
  EXPECT_EQ(any(counts).dtype(), boolean);
  EXPECT_EQ(sum(full({3}, 1.0, bf16)).dtype(), bf16);
  EXPECT_EQ(sum(full({1000}, 1.0, bf16)).item(), 1000);
  EXPECT_NEAR(logsumexp(tensor({1, 1}), {0}).item(), 1.6931, 1e-4);
  const int64_t large = (int64_t{1} << 53) + 1;  // would not survive a double
  EXPECT_EQ(sum(full({1}, 0, i64) + from_vector(std::vector<int64_t>{large})).item<int64_t>(),
            large);
  EXPECT_EQ(max(from_vector(std::vector<int64_t>{large, 1})).item<int64_t>(), large);
}

TEST(Reduce, ScalarsReduceToThemselves) {
  const Tensor x = tensor(3.0);
  EXPECT_EQ(sum(x, {0}).shape(), Shape());
  EXPECT_EQ(sum(x, {-1}, true).item(), 3);
  EXPECT_EQ(max(x, 0).values.shape(), Shape());
  EXPECT_EQ(max(x, 0).indices.item<int64_t>(), 0);
  EXPECT_EQ(argmax(x).item<int64_t>(), 0);
  EXPECT_EQ(sort(x).values.item(), 3);
  EXPECT_EQ(topk(x, 1).indices.item(), 0);
  EXPECT_EQ(cumsum(x, 0).item(), 3);
}

// ---- values and gradients on odd inputs, as PyTorch prints them

struct Run {
  std::vector<double> y, dx;
};
Run run(const std::function<Tensor(const Tensor&)>& f, Tensor x) {
  x.requires_grad_();
  const Tensor y = f(x);
  sum(y).backward();
  return {y.tolist(), x.grad().tolist()};
}
// Equal where numbers, NaN where NaN.
void expect_same(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) || std::isinf(expected[i])) {
      EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i])
          << i << ": " << got[i] << " instead of " << expected[i];
    } else {
      EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
    }
  }
}
void expect_run(const Run& got, const std::vector<double>& y, const std::vector<double>& dx) {
  expect_same(got.y, y);
  expect_same(got.dx, dx);
}

TEST(Reduce, TiesShareTheGradientOrTheFirstTakesIt) {
  const Tensor x = tensor({{1.0, 3.0, 3.0}, {3.0, 2.0, 1.0}});
  expect_run(run([](auto& a) { return amax(a); }, x.clone()), {3},
             {0, 1. / 3, 1. / 3, 1. / 3, 0, 0});
  expect_run(run([](auto& a) { return amin(a, {0, 1}); }, x.clone()), {1}, {0.5, 0, 0, 0, 0, 0.5});
  expect_run(run([](auto& a) { return max(a); }, x.clone()), {3},
             {0, 1. / 3, 1. / 3, 1. / 3, 0, 0});
  expect_run(run([](auto& a) { return max(a, 1).values; }, x.clone()), {3, 3}, {0, 1, 0, 1, 0, 0});
  expect_run(run([](auto& a) { return min(a, 0).values; }, x.clone()), {1, 2, 1},
             {1, 0, 0, 0, 1, 1});
  EXPECT_EQ(max(x, 1).indices.tolist<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(argmax(x).item<int64_t>(), 1);
  EXPECT_EQ(argmin(x).item<int64_t>(), 0);
  EXPECT_EQ(argmax(x, {}, true).shape(), (Shape{1, 1}));
  const Tensor z = tensor({{-3.0, 1.0, 3.0}, {2.0, -1.0, 0.5}});
  expect_run(run([](auto& a) { return norm(a, inf); }, z.clone()), {3}, {-0.5, 0, 0.5, 0, 0, 0});
  expect_run(run([](auto& a) { return norm(a, -inf, {0}); }, z.clone()), {2, 1, 0.5},
             {0, 0.5, 0, 1, -0.5, 1});
  // The first of equals also where several threads and lanes look.
  Tensor many = zeros({300, 400});
  EXPECT_EQ(argmax(many).item<int64_t>(), 0);
  EXPECT_EQ(sum(argmax(many, 0)).item<int64_t>(), 0);
  many.index({Slice(200, {}), Slice(17, {})}).fill_(1);
  EXPECT_EQ(argmax(many).item<int64_t>(), 200 * 400 + 17);
  EXPECT_EQ(argmax(many, 1).tolist<int64_t>()[299], 17);
  EXPECT_EQ(argmax(many.T(), 1).tolist<int64_t>()[18], 200);
}

// Many lines of few elements: NaN is the largest and the smallest, and the first of equals counts,
// also of 0 and -0.
TEST(Reduce, ExtremesOfManyShortLines) {
  Tensor x = (numbers(300 * 5) * 3).round().view({300, 5});
  x = where(numbers(300 * 5).view({300, 5}) > 0.8, std::nan(""), x);
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor z = x.to(dtype);
    for (const Tensor& y : {z, z.T().contiguous().T(), z.narrow(1, 0, 1)}) {
      const auto n = static_cast<size_t>(y.size(1));
      const std::vector<double> v = y.to(f64).contiguous().tolist();
      for (const bool largest : {false, true}) {
        const auto found = largest ? max(y, 1) : min(y, 1);
        const auto values = found.values.to(f64).tolist();
        const auto places = found.indices.tolist<int64_t>();
        for (size_t line = 0; line < 300; ++line) {
          const double* of_line = &v[line * n];
          const double* best = std::find_if(of_line, of_line + n, [](double a) { return a != a; });
          if (best == of_line + n)
            best = largest ? std::max_element(of_line, of_line + n)
                           : std::min_element(of_line, of_line + n);
          ASSERT_EQ(places[line], best - of_line) << line;
          ASSERT_TRUE(*best != *best || std::signbit(values[line]) == std::signbit(*best)) << line;
          ASSERT_TRUE(*best != *best ? values[line] != values[line] : values[line] == *best);
        }
      }
    }
  }
}

TEST(Reduce, NanAndInfinityAsInPyTorch) {
  const double nan = NAN;
  const Tensor x = tensor({{nan, 1.0}, {2.0, 2.0}, {1.0, nan}, {-inf, -inf}, {inf, inf}});
  expect_run(run([](auto& a) { return amax(a, {1}); }, x.clone()), {nan, 2, nan, -inf, inf},
             {nan, nan, 0.5, 0.5, nan, nan, 0.5, 0.5, 0.5, 0.5});
  expect_run(run([](auto& a) { return max(a); }, x.clone()), {nan},
             {0.5, 0, 0, 0, 0, 0.5, 0, 0, 0, 0});
  expect_run(run([](auto& a) { return max(a, 1).values; }, x.clone()), {nan, 2, nan, -inf, inf},
             {1, 0, 1, 0, 0, 1, 1, 0, 1, 0});
  EXPECT_EQ(argmin(tensor({3.0, nan, nan})).item<int64_t>(), 1);
  EXPECT_EQ(argmax(full({100000}, nan)).item<int64_t>(), 0);
  EXPECT_TRUE(any(tensor({nan})).item<bool>());

  const Tensor z =
      tensor({{-inf, -inf}, {1.0, 2.0}, {inf, 1.0}, {-inf, 0.0}, {nan, 1.0}, {inf, -inf}});
  expect_run(run([](auto& a) { return logsumexp(a, {1}); }, z.clone()),
             {-inf, 2.3133, inf, 0, nan, inf},
             {nan, nan, 0.2689, 0.7311, nan, 0, 0, 1, nan, nan, nan, 0});
  EXPECT_NEAR(logsumexp(tensor({1000.0, 1000.0}), {0}).item(), 1000.6931, 1e-4);
  EXPECT_NEAR(logsumexp(tensor({1000.0, -1000.0}), {0}).item(), 1000, 1e-4);
}

// Elements are compared eight at a time, in lanes, and one by one at the end of a row.
TEST(Reduce, NanIsFoundWhereverItIs) {
  for (DType dtype : {f64, f32, bf16}) {
    const Tensor rows = randn({350, 350}).to(dtype), largest = rows.amax({1});
    const Tensor marked = rows.masked_fill(eye(350, {boolean}), NAN);  // one in each row and column
    for (const Tensor& x : {marked, marked.T().contiguous()}) {
      EXPECT_TRUE(all(isnan(amax(x, {0}))).item<bool>());
      EXPECT_TRUE(all(isnan(amin(x, {1}))).item<bool>());
      EXPECT_TRUE(all(isnan(max(x, 0).values)).item<bool>());
      EXPECT_TRUE(equal(argmin(x, 1), arange(350, {i64})));
    }
    EXPECT_FALSE(any(isnan(amax(rows, {0}))).item<bool>());
    EXPECT_TRUE(all(rows <= largest.unsqueeze(1)).item<bool>());
  }
}

TEST(Reduce, ProdOfZerosAsInPyTorch) {
  const double nan = NAN;
  const Tensor x =
      tensor({{1.0, 2.0, 3.0}, {0.0, 2.0, 3.0}, {0.0, 0.0, 3.0}, {nan, 0.0, 1.0}, {inf, 2.0, 0.0}});
  expect_run(run([](auto& a) { return prod(a, {1}); }, x.clone()), {6, 0, 0, nan, nan},
             {6, 3, 2, 6, 0, 0, 0, 0, 0, 0, nan, nan, 0, nan, inf});
  const Tensor large = tensor({{0x1p66, 0x1p66, 0x1p-66}, {0x1p-99, 0x1p-99, 1.0}}, f32);
  expect_run(run([](auto& a) { return prod(a, {1}); }, large.clone()), {0x1p66, 0},
             {1, 1, inf, 0x1p-99, 0x1p-99, 0});
  const Tensor two = tensor({{1.0, 2.0, 3.0}, {0.0, 2.0, 3.0}});
  expect_run(run([](auto& a) { return prod(a); }, two.clone()), {0}, {0, 0, 0, 36, 0, 0});
  // The second derivative too: d2/dx0 dx1 of x0 x1 x2 at (0, 2, 3) is 3.
  Tensor a = tensor({0.0, 2.0, 3.0});
  a.requires_grad_();
  const Tensor dx = grad({prod(a)}, {a}, {}, false, true)[0];
  expect_same(dx.tolist(), {6, 0, 0});
  expect_same(grad({dx.select(0, 0)}, {a})[0].tolist(), {0, 3, 2});
}

TEST(Reduce, VarAndStdWithoutSpreadAsInPyTorch) {
  const double nan = NAN;
  expect_run(run([](auto& a) { return var(a); }, tensor({1.0})), {nan}, {nan});
  expect_run(run([](auto& a) { return var(a, {1}); }, tensor({{1.0, inf}, {2.0, 2.0}})), {nan, 0},
             {-inf, nan, 0, 0});
  expect_run(run([](auto& a) { return std(a, {1}); }, tensor({{1.0, 2.0}, {2.0, 2.0}})),
             {0.7071, 0}, {-0.7071, 0.7071, 0, 0});
  expect_run(run([](auto& a) { return std(a, {1}); }, tensor({{1.0}, {2.0}})), {nan, nan},
             {nan, nan});
  expect_run(run([](auto& a) { return std(a, {1}, 0); }, tensor({{1.0}, {2.0}})), {0, 0}, {0, 0});
  expect_run(run([](auto& a) { return var(a, {1}, 3); }, tensor({{1.0, 2.0}, {2.0, 5.0}})),
             {inf, inf}, {1, -1, 3, -3});
  // Numbers whose squares overflow, in all the ways in which they may be joined.
  for (const int64_t n : {7, 32, 63, 64, 1000})
    for (const double each : {1e160, -1e200, 3.3e300}) {
      EXPECT_EQ(var(full({2, n}, each, f64), {1}).tolist(), (std::vector<double>{0, 0}))
          << n << " " << each;
      EXPECT_EQ(var(full({n, 2}, each, f64), {0}).tolist(), (std::vector<double>{0, 0}))
          << n << " " << each;
    }
}

TEST(Reduce, ProductsOfOneGiveTheirGradientAsItIs) {
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor x = tensor({{1e-42, 0.1, 3.3, -7.7}}, dtype).requires_grad_();
    const Tensor dy = tensor({{0.7, 0.1, -3.1, 1.9}}, dtype);
    for (const Tensor& y : {prod(x, {0}, true), cumprod(x, 0)})
      EXPECT_TRUE(equal(grad({y}, {x}, {dy})[0], dy)) << name_of(dtype);
  }
}

TEST(Reduce, MseLoss) {
  const Tensor a = tensor({{1.0, 2.0}, {3.0, 5.0}}), b = tensor({{1.0, 0.0}, {4.0, 5.0}});
  EXPECT_EQ(mse_loss(a, b).item(), 1.25);
  EXPECT_EQ(mse_loss(a, b, Reduction::sum).item(), 5);
  EXPECT_EQ(mse_loss(a, b, Reduction::none).tolist(), (std::vector<double>{0, 4, 1, 0}));
  expect_run(run([&](auto& x) { return mse_loss(x, b); }, a.clone()), {1.25}, {0, 1, -0.5, 0});
}

TEST(Scan, CumsumSortTopk) {
  const double nan = NAN;
  expect_same(cumsum(tensor({1.0, inf, -inf, 1.0}), 0).tolist(), {1, inf, nan, nan});
  EXPECT_EQ(cumsum(tensor({true, true}), 0).dtype(), i64);
  EXPECT_EQ(cumsum(tensor({{1, 2}, {3, 4}}), 0).tolist(), (std::vector<double>{1, 2, 4, 6}));
  EXPECT_EQ(cumsum(tensor({{1, 2}, {3, 4}}).T(), 0).tolist(), (std::vector<double>{1, 3, 3, 7}));

  const Tensor x = tensor({3.0, nan, 1.0, inf, 3.0});
  const auto [up, up_at] = sort(x);
  expect_same(up.tolist(), {1, 3, 3, inf, nan});
  EXPECT_EQ(up_at.tolist<int64_t>(), (std::vector<int64_t>{2, 0, 4, 3, 1}));
  const auto [down, down_at] = sort(x, 0, true);
  expect_same(down.tolist(), {nan, inf, 3, 3, 1});
  EXPECT_EQ(down_at.tolist<int64_t>(), (std::vector<int64_t>{1, 3, 0, 4, 2}));
  expect_same(topk(x, 2).values.tolist(), {nan, inf});
  const auto [least, least_at] = topk(x, 2, 0, false);
  expect_same(least.tolist(), {1, 3});
  EXPECT_EQ(least_at.tolist<int64_t>(), (std::vector<int64_t>{2, 0}));
  expect_run(run([](auto& a) { return topk(a, 2).values; }, tensor({1.0, 3.0, 2.0, 3.0})), {3, 3},
             {0, 1, 0, 1});
  EXPECT_EQ(sort(zeros({3, 0}), 0).values.shape(), (Shape{3, 0}));
  EXPECT_EQ(topk(zeros({3, 2}), 0).values.shape(), (Shape{3, 0}));
  EXPECT_EQ(sort(tensor({true, false})).indices.tolist(), (std::vector<double>{1, 0}));
}

// Lines of every length that is sorted in a way of its own: by rank, in one vector or several, or
// by radix.
TEST(Scan, SortIsStdStableSort) {
  for (const int64_t n : {1, 15, 16, 17, 40, 100, 130, 300, 600}) {
    Tensor x = (numbers(2 * n) * 9).round().view({2, n});
    if (n > 15) x.index({1, 7}) = std::nan("");
    for (const DType dtype : {f32, f64, bf16, i64, boolean}) {
      const Tensor y = is_floating(dtype) ? x.to(dtype) : masked_fill(x, isnan(x), 5).to(dtype);
      for (const bool descending : {false, true}) {
        SCOPED_TRACE(::testing::Message() << n << name_of(dtype) << descending);
        const std::vector<double> v = y.to(f64).tolist();
        std::vector<int64_t> expected;
        for (int64_t line = 0; line < 2; ++line) {
          const auto at = [&](int64_t i) { return v[static_cast<size_t>(line * n + i)]; };
          std::vector<int64_t> places(static_cast<size_t>(n));
          std::iota(places.begin(), places.end(), int64_t{0});
          std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
            if (descending) std::swap(a, b);
            return std::isnan(at(b)) ? !std::isnan(at(a)) : at(a) < at(b);
          });
          expected.insert(expected.end(), places.begin(), places.end());
        }
        const auto [values, indices] = sort(y, 1, descending);
        EXPECT_EQ(indices.tolist<int64_t>(), expected);
        EXPECT_TRUE(allclose(values.to(f64), gather(y, 1, indices).to(f64), 0, 0, true));
      }
    }
  }
}

// Of equal elements the first ones, whichever way topk chooses them. sort is stable.
TEST(Scan, TopkIsWhereSortBegins) {
  for (const int64_t n : {7, 1000}) {
    Tensor x = (numbers(n * 3) * 20).round().view({3, n});
    x.index({1, n / 2}) = std::nan("");
    for (const DType dtype : {f32, f64, i64}) {
      const Tensor y = dtype == i64 ? masked_fill(x, isnan(x), 9).to(i64) : x.to(dtype);
      for (const auto& [lines, dim] : {std::pair(y, 1), std::pair(y.T().contiguous(), 0)}) {
        for (const int64_t k : {int64_t{1}, int64_t{3}, int64_t{30}, int64_t{40}, n - 1}) {
          if (k > n) continue;
          for (const bool largest : {false, true}) {
            const auto all = sort(lines, dim, largest), first = topk(lines, k, dim, largest);
            const Tensor values = narrow(all.values, dim, 0, k);
            EXPECT_TRUE(equal(first.indices, narrow(all.indices, dim, 0, k))) << k << largest;
            EXPECT_TRUE(allclose(first.values, values, 0, 0, true)) << k << largest;
          }
        }
      }
    }
  }
}

TEST(Reduce, SplitOverThreadsGivesTheSameBits) {
  const Tensor x = numbers(1000003).to(f32), y = x.narrow(0, 0, 1000000).view({100000, 10});
  const float total = sum(x).item<float>();
  const auto columns = sum(y, {0}).tolist<float>();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sum(x).item<float>(), total);
    EXPECT_EQ(sum(y, {0}).tolist<float>(), columns);
  }
}

TEST(Reduce, Errors) {
  const Tensor x = zeros({2, 3}), none = zeros({0, 3}), whole = tensor({1, 2});
  EXPECT_EQ(error_of([&] { sum(x, {2}); }), "sum: dimension 2 is out of range for shape (2, 3)");
  EXPECT_EQ(error_of([&] { sum(x, {0, -2}); }), "sum: dimension 0 is named twice in (0, -2)");
  EXPECT_EQ(error_of([&] { mean(whole); }), "mean: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { var(whole); }), "var: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { std(whole); }), "std: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { amax(none, {0}); }),
            "amax: dimension 0 of (0, 3) has no elements to choose from");
  EXPECT_EQ(error_of([&] { max(none); }),
            "max: dimension 0 of (0, 3) has no elements to choose from");
  EXPECT_EQ(error_of([&] { min(none, 0); }),
            "min: dimension 0 of (0, 3) has no elements to choose from");
  EXPECT_EQ(error_of([&] { argmax(none); }), "argmax: (0, 3) has no elements to choose from");
  EXPECT_EQ(error_of([&] {
              sum_to(x, {2, 2});
            }),
            "sum_to: shapes (2, 3) and (2, 2) do not broadcast");
  EXPECT_EQ(error_of([&] {
              sum_to(x, {4, 2, 3});
            }),
            "sum_to: (4, 2, 3) does not broadcast to (2, 3)");
  EXPECT_EQ(error_of([&] { mse_loss(x, none); }),
            "mse_loss: shapes (2, 3) and (0, 3) do not broadcast");
  EXPECT_EQ(error_of([&] { mse_loss(whole, whole); }),
            "mse_loss: expected a floating dtype, got int64");
  EXPECT_EQ(error_of([&] { topk(x, 4); }),
            "topk: expected k between 0 and 3, the size of dimension 1 of (2, 3), got 4");
  EXPECT_EQ(error_of([&] { cumsum(x, 2); }),
            "cumsum: dimension 2 is out of range for shape (2, 3)");
}

}  // namespace
}  // namespace ink
