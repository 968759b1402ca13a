// Reductions against a plain loop, PyTorch's values on odd cases, and error texts.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "tests/temp_files.h"

namespace ink {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

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
                                  {130, 2}, {70, 2, 257}, {2, 1, 700}, {4, 0, 3}};
  for (const Shape& shape : shapes) {
    const Tensor wide = numbers(shape.numel() * 2);
    const Tensor gaps = slice(wide, 0, 0, wide.numel(), 2).reshape(shape);
    std::vector<Tensor> layouts{wide.narrow(0, 0, shape.numel()).view(shape),
                                wide.alias({shape, contiguous_strides(shape), 0})};
    Shape gap_strides = contiguous_strides(shape);
    for (int64_t& s : gap_strides) s *= 2;
    layouts.push_back(wide.alias({shape, gap_strides, 0}));
    for (int64_t d = 1; d < shape.size(); ++d) {
      layouts.push_back(wide.alias({shape, contiguous_strides(shape), 0}).transpose(0, d));
      layouts.push_back(layouts[1].transpose(d - 1, d));
      layouts.push_back(layouts[1].narrow(d, 0, std::min<int64_t>(1, shape[d])).expand(shape));
      layouts.push_back(layouts[1].narrow(0, 0, 1).expand(shape).transpose(0, d));
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

}  // namespace
}  // namespace ink
