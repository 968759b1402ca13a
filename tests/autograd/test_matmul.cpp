#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/gemm.h"
#include "autograd/kernels/gemm.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

// c (+)= a b in doubles, one element after the other.
std::vector<double> by_definition(const Tensor& c, const Tensor& a, const Tensor& b,
                                  bool accumulate) {
  const auto pa = a.tolist(), pb = b.tolist();
  auto pc = c.tolist();
  const size_t m = static_cast<size_t>(a.size(-2)), k = static_cast<size_t>(a.size(-1)),
               n = static_cast<size_t>(b.size(-1));
  for (size_t at = 0; at < pc.size(); ++at) {
    const size_t batch = at / (m * n), i = at / n % m, j = at % n;
    double total = 0;
    for (size_t l = 0; l < k; ++l)
      total += pa[(batch * m + i) * k + l] * pb[(batch * k + l) * n + j];
    pc[at] = total + (accumulate ? pc[at] : 0);
  }
  return pc;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance) {
  const auto values = got.tolist();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance) << "element " << i << " of " << got.shape();
}

// Small integers: every dtype is exact.
Tensor small_integers(const Shape& shape, DType dtype) { return randint(-3, 4, shape).to(dtype); }

// The matrix x in another place: its transpose in memory, rows or columns apart, or both.
Tensor laid_out(const Tensor& x, int way) {
  const Tensor wide = zeros(Shape{x.size(0), 2 * x.size(1) + 3}, x.options());
  Tensor y = way == 0   ? empty_like(x)
             : way == 1 ? empty({x.size(1), x.size(0)}, x.options()).transpose(0, 1)
             : way == 2 ? wide.narrow(1, 3, x.size(1))
                        : slice(wide, 1, 1, 1 + 2 * x.size(1), 2);
  return y.copy_(x);
}

TEST(Gemm, AgreesWithItsDefinitionInEveryLayoutAndDtype) {
  manual_seed(1);
  const int64_t shapes[][3] = {{1, 1, 1}, {1, 7, 5},   {6, 1, 5},    {5, 4, 1},
                               {3, 4, 5}, {9, 80, 41}, {32, 16, 18}, {67, 35, 130}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType dtype : {f32, f64, bf16, i64}) {
      for (int way = 0; way < 64; ++way) {
        const Tensor a = laid_out(small_integers({m, k}, dtype), way % 4),
                     b = laid_out(small_integers({k, n}, dtype), way / 4 % 4);
        const bool accumulate = way % 3 == 0;
        const DType result = dtype == bf16 ? f32 : dtype;
        Tensor c = laid_out(small_integers({m, n}, result), way / 16);
        const auto expected = by_definition(c, a, b, accumulate);
        if (!accumulate && is_floating(result)) c.fill_(NAN);
        kernel::gemm(c, a, b, accumulate);
        expect_near(c, expected, 0);
      }
    }
  }
}

TEST(Gemm, TilesOfOneProductAndProductsOfABatchAreSharedByThreads) {
  manual_seed(2);
  const int64_t shapes[][4] = {{1, 517, 129, 300}, {1, 33, 700, 300}, {2, 200, 200, 100},
                               {3, 90, 111, 200},  {40, 33, 34, 35},  {1, 1, 900, 700},
                               {1, 900, 1, 700},   {5, 1, 300, 400}};
  for (const auto& [batch, m, n, k] : shapes) {
    const Tensor a = small_integers({batch, m, k}, f32), b = small_integers({batch, k, n}, f32);
    Tensor c = full({batch, m, n}, NAN);
    kernel::gemm(c, a, b, false);
    expect_near(c, by_definition(c, a, b, false), 0);
  }
}

// What no unit takes: few rows or columns, b contiguous along either dimension, tiny matrices. More
// of the inner dimension than is summed at once, several threads, and a bias.
TEST(Gemm, Unpacked) {
  manual_seed(3);
  const std::array<int64_t, 3> shapes[] = {
      {2, 16, 1030}, {30, 336, 513}, {3, 5, 700}, {32, 81, 1025}, {6, 270, 333}, {5, 3, 40},
      {150, 4, 65},  {2, 3, 4},      {4, 4, 4},   {70, 130, 3},   {33, 64, 1}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType dtype : {f32, f64, i64}) {
      for (const bool transposed : {false, true}) {
        const Tensor a = small_integers({3, m, k}, dtype), c = small_integers({3, m, n}, dtype),
                     bias = small_integers({2 * n}, dtype);
        const Tensor b = transposed ? small_integers({3, n, k}, dtype).transpose(1, 2)
                                    : small_integers({3, k, n}, dtype);
        Tensor sum = c.clone();
        kernel::gemm(sum, a, b, true);
        expect_near(sum, by_definition(c, a, b, true), 0);
        if (dtype == i64) continue;
        for (const Tensor& row : {bias.narrow(0, 0, n), slice(bias, 0, 0, 2 * n, 2), c[0][0]}) {
          Tensor start = row.expand({3, m, n}).contiguous(), y = full({3, m, n}, NAN, {dtype});
          kernel::gemm_bias(y, a, b, row);
          expect_near(y, by_definition(start, a, b, true), 0);
        }
      }
    }
  }
}

// A matrix times a vector, by rows and by columns, in several parts and with odd ends.
TEST(Gemm, Vectors) {
  manual_seed(3);
  const int64_t sizes[][2] = {{1, 20001}, {3, 9001}, {4, 64}, {7, 515}, {35, 1027}, {4099, 5}};
  for (const auto& [rows, k] : sizes) {
    for (const DType dtype : {f32, f64, bf16}) {
      for (int64_t way = 0; way < 16; way += by_device(1, 5)) {
        const Tensor matrix = laid_out(small_integers({rows, k}, dtype), way % 4),
                     vector = laid_out(small_integers({k, 1}, dtype), way / 4);
        const DType result = dtype == bf16 ? f32 : dtype;
        Tensor column = full({rows, 1}, NAN, result), row = full({1, rows}, 1, result);
        kernel::gemm(column, matrix, vector, false);
        kernel::gemm(row, vector.transpose(0, 1), matrix.transpose(0, 1), true);
        expect_near(column, by_definition(column, matrix, vector, false), 0);
        EXPECT_EQ(max(abs(row.transpose(0, 1) - column - 1)).item(), 0);
      }
    }
  }
}

TEST(Gemm, AnInfinityStaysInItsRow) {
  for (const bool by_columns : {false, true}) {
    Tensor matrix = ones({6, 70});
    matrix.index({5, 40}) = std::numeric_limits<float>::infinity();
    if (by_columns) matrix = laid_out(matrix, 1);
    const auto products = matmul(matrix, ones({70})).tolist();
    for (size_t i = 0; i < 6; ++i)
      EXPECT_EQ(products[i], i == 5 ? std::numeric_limits<double>::infinity() : 70);
  }
}

TEST(Gemm, RepeatedOperandsAreCopiedOnceAtMost) {
  const Tensor x = arange(6, f32).view({1, 2, 3}).expand({4, 2, 3});
  EXPECT_EQ(as_gemm_operand(x, f32).storage(), x.storage());
  const Tensor wide(as_gemm_operand(x, f64));
  EXPECT_EQ(wide.storage()->bytes, 6 * 8);
  EXPECT_EQ(wide.tolist(), x.tolist());
  const Tensor row = tensor({1.0, 2.0, 3.0}).expand({2, 3});  // rows overlap
  EXPECT_NE(as_gemm_operand(row, f32).storage(), row.storage());
}

// Under Strict, the bits of a row are those of a product of this row alone.
TEST(Gemm, StrictRowsStandAlone) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "Strict is of the CPU";
  manual_seed(5);
  const int64_t shapes[][3] = {
      {2, 33, 16}, {7, 130, 300}, {70, 65, 130}, {129, 1, 20}, {5, 9, 9000}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType dtype : {f32, f64, bf16}) {
      for (const int ways : {0, 1, 2, 3}) {
        const Tensor x = laid_out(randn({m, k}).to(dtype), ways),
                     w = laid_out(randn({n, k}).to(dtype), 3 - ways), b = randn({n}).to(dtype);
        const Tensor loose = linear(x, w, b);
        const Strict strict;
        const Tensor y = linear(x, w, b), z = matmul(x.unsqueeze(0), w.transpose(0, 1));
        EXPECT_TRUE(allclose(y, loose, dtype == bf16 ? 0.02 : 1e-4, dtype == bf16 ? 0.02 : 2e-3));
        for (int64_t i = 0; i < m; i += 3) {
          EXPECT_EQ(linear(x.narrow(0, i, 1), w, b).tolist(), y.narrow(0, i, 1).tolist());
          EXPECT_EQ(matmul(x.narrow(0, i, 1), w.transpose(0, 1)).tolist(),
                    z.narrow(1, i, 1).tolist());
        }
      }
    }
  }
}

TEST(Matmul, AllRanks) {
  const Tensor v = tensor({1.0, 2.0, 3.0}), m = arange(6, f32).view({2, 3});
  EXPECT_EQ(matmul(v, v).shape(), (Shape{}));
  EXPECT_EQ(matmul(v, v).item(), 14);
  EXPECT_EQ(matmul(m, v).tolist(), (std::vector<double>{8, 26}));
  EXPECT_EQ(matmul(v, m.T()).tolist(), (std::vector<double>{8, 26}));
  EXPECT_EQ(matmul(m, m.T()).tolist(), (std::vector<double>{5, 14, 14, 50}));
  EXPECT_EQ(matmul(ones({5, 1, 2, 3}), ones({4, 3, 6})).shape(), (Shape{5, 4, 2, 6}));
  EXPECT_EQ(matmul(ones({5, 4, 2, 3}), ones({3})).shape(), (Shape{5, 4, 2}));
  EXPECT_EQ(matmul(ones({3}), ones({5, 3, 2})).shape(), (Shape{5, 2}));
  EXPECT_EQ(matmul(ones({5, 2, 3}), ones({3, 4})).shape(), (Shape{5, 2, 4}));
  EXPECT_EQ(matmul(ones({2, 0}), ones({0, 2})).tolist(), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(matmul(ones({0, 2, 3}), ones({3, 4})).shape(), (Shape{0, 2, 4}));
  EXPECT_EQ(dot(v, v).item(), 14);
  EXPECT_EQ(outer(v, tensor({1.0, -1.0})).tolist(), (std::vector<double>{1, -1, 2, -2, 3, -3}));
  EXPECT_EQ(matmul(arange(4).view({2, 2}), arange(2)).tolist(), (std::vector<double>{1, 3}));
}

TEST(Matmul, NaNAndInfinityPropagate) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor c = matmul(tensor({{inf, 1.0}, {NAN, 0.0}}), tensor({{0.0, 1.0}, {2.0, 3.0}}));
  const auto values = c.tolist();
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[2]) && std::isnan(values[3]));
  EXPECT_EQ(values[1], inf);
}

// W in W x for a batch of x: its gradient is summed as it is computed, and can be differentiated.
TEST(Matmul, GradientOfAMatrixThatIsBroadcast) {
  manual_seed(4);
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor w = randn({96, 64}).to(dtype).requires_grad_(), x = randn({50, 64, 20}).to(dtype),
                 upstream = randn({50, 96, 20}).to(dtype);
    const Tensor y = matmul(w, x);
    reset_peak_memory();
    const int64_t before = memory_stats().bytes_in_use;
    const Tensor dw = grad({y}, {w}, {upstream}, true)[0];
    EXPECT_LT(memory_stats().peak_bytes_in_use - before, 12 * 96 * 64 * size_of(dtype));
    const Tensor again = grad({y}, {w}, {upstream}, true, true)[0],
                 exact = sum(matmul(upstream.to(f64), x.to(f64).transpose(1, 2)), {0}, false);
    EXPECT_EQ(dw.dtype(), dtype);
    const double tolerance = dtype == f64 ? 1e-12 : dtype == f32 ? 1e-4 : 1;
    EXPECT_LT(max(abs(dw.to(f64) - exact)).item(), tolerance);
    EXPECT_LT(max(abs(again.to(f64) - exact)).item(), tolerance);
  }
}

TEST(Matmul, Errors) {
  EXPECT_EQ(error_of([] {
              matmul(ones({3, 4}), ones({5, 6}));
            }),
            "matmul: inner dimensions differ: (3, 4) @ (5, 6)");
  EXPECT_EQ(error_of([] { matmul(ones({3}), ones({4})); }),
            "matmul: inner dimensions differ: (3,) @ (4,)");
  EXPECT_EQ(error_of([] { matmul(ones({}), ones({4})); }),
            "matmul: expected at least one dimension, got () @ (4,)");
  EXPECT_EQ(error_of([] {
              matmul(ones({2, 3, 4}), ones({5, 4, 3}));
            }),
            "matmul: shapes (2,) and (5,) do not broadcast");
  EXPECT_EQ(error_of([] { matmul(ones({3}), ones({3}, f64)); }),
            "matmul: expected one dtype, got float32 @ float64");
  EXPECT_EQ(error_of([] { matmul(ones({3}, boolean), ones({3}, boolean)); }),
            "matmul: expected numbers, got bool");
  EXPECT_EQ(error_of([] { dot(ones({3}), ones({4})); }),
            "dot: expected two vectors of one size, got (3,) and (4,)");
  EXPECT_EQ(error_of([] {
              outer(ones({3}), ones({4, 1}));
            }),
            "outer: expected two vectors, got (3,) and (4, 1)");
}

TEST(Linear, ValuesAndGradients) {
  Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}), w = tensor({{1.0, -1.0}, {0.5, 2.0}}),
         b = tensor({10.0, 20.0});
  for (Tensor* t : {&x, &w, &b}) t->requires_grad_();
  const Tensor y = linear(x, w, b);
  EXPECT_EQ(y.tolist(), (std::vector<double>{9, 24.5, 9, 29.5, 9, 34.5}));
  y.backward(tensor({{1.0, 0.0}, {0.0, 1.0}, {1.0, 1.0}}));
  EXPECT_EQ(x.grad().tolist(), (std::vector<double>{1, -1, 0.5, 2, 1.5, 1}));
  EXPECT_EQ(w.grad().tolist(), (std::vector<double>{6, 8, 8, 10}));
  EXPECT_EQ(b.grad().tolist(), (std::vector<double>{2, 2}));
}

TEST(Linear, OfIntegers) {
  const Tensor x = arange(24).view({2, 3, 4}), weight = arange(20).view({5, 4});
  const Tensor y = linear(x, weight, arange(5));
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(y.index({1, 2}).tolist<int64_t>(), (std::vector<int64_t>{134, 479, 824, 1169, 1514}));
}

TEST(Linear, AddsIntoGradientsInPlace) {
  Tensor x = ones({4, 3}), w = ones({2, 3}), b = ones({2});
  w.requires_grad_();
  b.requires_grad_();
  sum(linear(x, w, b)).backward();
  const Storage *memory = w.grad().storage().get(), *bias_memory = b.grad().storage().get();
  const Tensor three = full({}, 3);
  linear(x, w, b).backward(three.expand({4, 2}));
  EXPECT_EQ(w.grad().storage().get(), memory);
  EXPECT_EQ(b.grad().storage().get(), bias_memory);
  EXPECT_EQ(w.grad().tolist(), std::vector<double>(6, 16));
  EXPECT_EQ(b.grad().tolist(), std::vector<double>(2, 16));
}

TEST(Linear, BiasGradientOfManyRowsIsAccurate) {
  Tensor w = zeros({1, 1}), b = zeros({1});
  b.requires_grad_();
  linear(ones({1000003, 1}), w, b).backward(full({1000003, 1}, 0.1));
  EXPECT_NEAR(b.grad().item(), 100000.3, 0.1);  // a plain float sum is off by 958
}

// Columns apart in memory, more of them than are summed at a time, and rows in several blocks.
TEST(Linear, BiasGradientOfAnyLayout) {
  manual_seed(4);
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor x = zeros({70, 2}, dtype), w = zeros({67, 2}, dtype),
                 dy = small_integers({70, 67}, dtype);
    std::vector<double> expected(67);
    const auto values = dy.tolist();
    for (size_t i = 0; i < values.size(); ++i) expected[i % 67] += values[i];
    for (int way = 0; way < 4; ++way) {
      const Tensor b = zeros({67}, dtype).requires_grad_();
      linear(x, w, b).backward(laid_out(dy, way));
      EXPECT_EQ(b.grad().tolist(), expected) << dtype << " " << way;
    }
  }
}

TEST(Linear, Errors) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(linear(x, ones({3})).shape(), Shape({2}));  // one output, without a dimension
  EXPECT_EQ(error_of([&] {
              linear(x, ones({5, 4}));
            }),
            "linear: expected x (..., 4) for weight (5, 4), got (2, 3)");
  EXPECT_EQ(error_of([&] {
              linear(x, ones({5, 3}), ones({4}));
            }),
            "linear: expected bias (5,) for weight (5, 3), got (4,)");
  EXPECT_EQ(error_of([&] {
              linear(x, ones({5, 3}, f64));
            }),
            "linear: expected one floating dtype, got x float32 and weight float64");
  EXPECT_EQ(error_of([&] {
              linear(x, ones({5, 3}), ones({5}, f64));
            }),
            "linear: expected one floating dtype, got x float32 and bias float64");
}

}  // namespace
}  // namespace ink
