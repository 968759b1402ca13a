// Views, copies, joins and splits: values, what shares memory, gradients of parts, error texts.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "autograd/more_ops.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

using Ints = std::vector<int64_t>;

// 0, 1, 2, ... in a shape.
Tensor counting(const Shape& shape, DType dtype = f32) {
  return arange(static_cast<double>(shape.numel())).view(shape).to(dtype);
}
Ints ints(const Tensor& x) { return x.tolist<int64_t>(); }
bool shares(const Tensor& a, const Tensor& b) { return a.storage() == b.storage(); }

TEST(Copies, RepeatIsCatAlongEachDimension) {
  const Tensor x = randn({2, 3, 1, 2});
  for (const Shape& times : {Shape{2, 1, 3, 2, 2}, Shape{3, 2, 2, 2}, Shape{1, 2, 2, 1, 2, 1, 2, 1},
                             Shape{1, 1, 1, 2}, Shape{2, 1, 1, 1}, Shape{2, 2, 2, 0, 2}}) {
    Shape shape = x.shape();
    while (shape.size() < times.size()) shape.insert(0, 1);
    Tensor expected = x.view(shape);
    for (int64_t d = 0; d < times.size(); ++d) {
      expected = times[d] == 0
                     ? expected.narrow(d, 0, 0)
                     : cat(std::vector<Tensor>(static_cast<size_t>(times[d]), expected), d);
    }
    EXPECT_TRUE(equal(x.repeat(times), expected)) << times;
  }
}

TEST(Views, SeeTheSameMemory) {
  Tensor x = counting({2, 3});
  const Tensor views[] = {x.view({3, 2}),      x.T(),          x.transpose(0, 1),
                          x.unsqueeze(1),      x.select(0, 1), x.narrow(1, 1, 2),
                          x.expand({4, 2, 3}), x.view({6}),    split(x, 1)[1],
                          x.permute({1, 0})};
  for (const Tensor& v : views) EXPECT_TRUE(shares(v, x)) << v.shape();
  x.fill_(7);
  for (const Tensor& v : views) EXPECT_TRUE(all(v == 7).item<bool>()) << v.shape();
}

TEST(Views, ShapesAndOrder) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(ints(x.transpose(0, 2).select(0, 1)), (Ints{1, 13, 5, 17, 9, 21}));
  EXPECT_EQ(x.permute({2, 0, -2}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(x.T().shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(x.view({-1, 12}).shape(), (Shape{2, 12}));
  EXPECT_EQ(x.flatten().shape(), (Shape{24}));
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 12}));
  EXPECT_EQ(tensor(1.0).flatten().shape(), (Shape{1}));
  EXPECT_EQ(counting({1, 3, 1}).squeeze().shape(), (Shape{3}));
  EXPECT_EQ(counting({1, 3, 1}).squeeze(0).shape(), (Shape{3, 1}));
  EXPECT_EQ(counting({1, 3, 1}).squeeze(1).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(ints(counting({3, 1}).expand({-1, 2})), (Ints{0, 0, 1, 1, 2, 2}));
  // Dimensions that lie next to each other in memory may be cut anew even when others do not.
  EXPECT_EQ(ints(x.transpose(0, 1).view({3, 2, 2, 2}).select(0, 2)),
            (Ints{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(x.narrow(2, 0, 2).view({6, 2}).shape(), (Shape{6, 2}));
  EXPECT_FALSE(shares(x.T().reshape({24}), x));
  EXPECT_TRUE(shares(x.reshape({24}), x));
  EXPECT_EQ(zeros({0, 4}).view({-1}).shape(), (Shape{0}));
}

TEST(Views, IndexAsBetweenPythonsBrackets) {
  const Tensor x = counting({4, 5});
  EXPECT_EQ(ints(x.index({1})), (Ints{5, 6, 7, 8, 9}));
  EXPECT_EQ(ints(x.index({-1, -2})), (Ints{18}));
  EXPECT_EQ(ints(x.index({Slice(1, 3), 0})), (Ints{5, 10}));
  EXPECT_EQ(ints(x.index({0, Slice({}, {}, 2)})), (Ints{0, 2, 4}));
  EXPECT_EQ(ints(x.index({0, Slice(-2, {})})), (Ints{3, 4}));
  EXPECT_EQ(ints(x.index({Ellipsis, -1})), (Ints{4, 9, 14, 19}));
  EXPECT_EQ(x.index({None, Ellipsis, None}).shape(), (Shape{1, 4, 5, 1}));
  EXPECT_EQ(x.index({Slice(3, 1)}).shape(), (Shape{0, 5}));
  EXPECT_EQ(x.index({Slice(-100, 100, 3)}).shape(), (Shape{2, 5}));
  EXPECT_EQ(x.index({Slice(0, 4, INT64_MAX)}).shape(), (Shape{1, 5}));
}

TEST(Views, UnfoldSeesWindows) {
  Tensor x = counting({2, 5});
  const Tensor windows = x.unfold(1, 3, 2);
  EXPECT_TRUE(shares(windows, x));
  EXPECT_EQ(windows.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(ints(windows), (Ints{0, 1, 2, 2, 3, 4, 5, 6, 7, 7, 8, 9}));
  EXPECT_EQ(ints(x.T().unfold(0, 2, 3)), (Ints{0, 1, 5, 6, 3, 4, 8, 9}));
  EXPECT_EQ(ints(x.unfold(1, 1, INT64_MAX)), (Ints{0, 5}));
  EXPECT_EQ(x.unfold(0, 0, 1).shape(), (Shape{3, 5, 0}));
  EXPECT_EQ(tensor(7.0).unfold(0, 1, 4).shape(), (Shape{1}));
  // Strides 2 and 2 reach over nine places, as nine elements without repeats would.
  const Tensor nine = counting({10}).index({Slice(0, {}, 2)}).unfold(0, 3, 1);
  EXPECT_EQ(ints(nine.clone() + nine), (Ints{0, 4, 8, 4, 8, 12, 8, 12, 16}));
}

TEST(Views, GradientOfUnfold) {
  const Tensor x = randn({2, 3, 4}, f64).requires_grad_();
  const auto check = [&](auto view) {
    const auto f = [&](auto&) { return view(x).square(); };
    EXPECT_TRUE(gradcheck(f, {x}));
    EXPECT_TRUE(gradgradcheck(f, {x}));
  };
  check([](const Tensor& a) { return a.unfold(2, 3, 1); });
  check([](const Tensor& a) { return a.unfold(0, 1, 1).unfold(2, 2, 2); });
  check([](const Tensor& a) { return a.unfold(1, 2, 1).unfold(2, 3, 1); });
  check([](const Tensor& a) { return a.T().unfold(0, 2, 1).transpose(0, 2); });
  check([](const Tensor& a) {
    return a.select(2, 1).unsqueeze(1).expand({2, 4, 3}).unfold(1, 3, 1);
  });
}

// Slices of one tensor add their gradients into one buffer; where they overlap, too.
TEST(Views, GradientsOfManySlicesAddUp) {
  Tensor x = counting({4, 3});
  x.requires_grad_();
  const Tensor y = x * 1;
  Tensor total = sum(y.select(0, 0)) * 2 + sum(y.select(0, 0)) + sum(y.narrow(0, 1, 3)) * 3 +
                 sum(y.index({Slice(0, {}, 2), Slice(1, {})})) * 10;
  total.backward();
  EXPECT_EQ(ints(x.grad()), (Ints{3, 13, 13, 3, 3, 3, 3, 13, 13, 3, 3, 3}));
}

TEST(Split, PiecesAndTheirShapes) {
  const auto sizes_of = [](const std::vector<Tensor>& pieces) {
    Ints sizes;
    for (const Tensor& p : pieces) sizes.push_back(p.size(0));
    return sizes;
  };
  EXPECT_EQ(sizes_of(split(zeros({7, 2}), 3)), (Ints{3, 3, 1}));
  EXPECT_EQ(sizes_of(split(zeros({7, 2}), Ints{1, 0, 6})), (Ints{1, 0, 6}));
  EXPECT_EQ(sizes_of(chunk(zeros({7, 2}), 4)), (Ints{2, 2, 2, 1}));
  EXPECT_EQ(sizes_of(chunk(zeros({5}), 7)), (Ints{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes_of(chunk(zeros({0, 2}), 3)), (Ints{0, 0, 0}));
  EXPECT_EQ(sizes_of(split(zeros({0, 2}), 3)), (Ints{0}));
  EXPECT_EQ(ints(chunk(counting({2, 6}), 3, -1)[1]), (Ints{2, 3, 8, 9}));
}

TEST(Split, AMissingGradientIsZero) {
  Tensor x = counting({2, 3});
  x.requires_grad_();
  sum(split(x, 1, 1)[1] * 5).backward();
  EXPECT_EQ(ints(x.grad()), (Ints{0, 5, 0, 0, 5, 0}));
}

// The gradient that split hands on when an op, such as attention on packed q, k and v, gives these
// gradients to the pieces.
Tensor gradient_from(const std::vector<Tensor>& given) {
  Tensor x = counting({4, 6}), seen;
  x.requires_grad_();
  Tensor y = x * 1;
  y.register_hook([&](const Tensor& dy) { return seen = dy; });
  const auto vjp = [&](const Grads&, VjpContext&) { return given; };
  record("test_pieces", chunk(y, 3, 1), std::vector<Tensor>{zeros({})}, vjp)[0].backward();
  return seen;
}

TEST(Split, GradientsSideBySideAreTakenAsTheyAre) {
  const Tensor packed = counting({4, 6}) + 100;
  const std::vector<Tensor> parts = chunk(packed, 3, 1);
  EXPECT_TRUE(shares(gradient_from(parts), packed));
  EXPECT_EQ(ints(gradient_from(parts)), ints(packed));
  // In another order, elsewhere, or not all there: put together in a new tensor.
  const Tensor swapped = gradient_from({parts[0], parts[2], parts[1]});
  EXPECT_FALSE(shares(swapped, packed));
  EXPECT_EQ(ints(swapped), ints(cat({parts[0], parts[2], parts[1]}, 1)));
  EXPECT_EQ(ints(gradient_from({parts[0].clone(), parts[1], parts[2]})), ints(packed));
  EXPECT_EQ(ints(gradient_from({{}, parts[1], parts[2]})),
            ints(cat({zeros({4, 2}), parts[1], parts[2]}, 1)));
}

TEST(Copies, TransposedMatricesOfAnySize) {
  const int64_t sizes[] = {1, 7, 8, 9, 64, 65, 130};
  for (DType dtype : {f32, f64, bf16, i64, boolean}) {
    for (int64_t rows : sizes) {
      for (int64_t columns : sizes) {
        const Tensor x = (counting({2, rows, columns}, i64) * 7 / 3).to(dtype);
        const Tensor y = x.transpose(1, 2).contiguous();
        const auto from = x.tolist(), to = y.tolist();
        bool same = true;
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j)
              same &= from[static_cast<size_t>((b * rows + i) * columns + j)] ==
                      to[static_cast<size_t>((b * columns + j) * rows + i)];
          }
        }
        EXPECT_TRUE(same) << dtype << " " << x.shape();
      }
    }
  }
}

TEST(Copies, ConvertBetweenAllDtypes) {
  const Tensor x = tensor({0.0, 1.0, -2.5, 300.0});
  EXPECT_EQ(ints(x.to(i64)), (Ints{0, 1, -2, 300}));
  EXPECT_EQ(x.to(boolean).tolist(), (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(x.to(bf16).tolist(), (std::vector<double>{0, 1, -2.5, 300}));
  EXPECT_EQ(tensor({1.00390625}).to(bf16).item(), 1.0);  // halfway: to even
  EXPECT_TRUE(tensor({static_cast<double>(NAN)}).to(bf16).to(boolean).item<bool>());
  EXPECT_EQ(x.T().to(f64).to(f32).tolist(), x.tolist());
}

// Joined tensors meet in one dtype; each gets its gradient in its own.
TEST(Copies, JoinsGiveEachItsGradientInItsDtype) {
  const Tensor dy = tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}});
  const DType dtypes[] = {bf16, f64, f32};
  std::vector<Tensor> rows;
  for (const DType dtype : dtypes) rows.push_back(zeros({1, 3}, dtype).requires_grad_());
  const Tensor joined = cat(rows), layers = stack(rows);
  EXPECT_EQ(joined.dtype(), f64);
  const Grads of_cat = grad({joined}, rows, {dy.to(f64)}),
              of_stack = grad({layers}, rows, {dy.to(f64).unsqueeze(1)});
  for (size_t i = 0; i < 3; ++i) {
    for (const Tensor& g : {of_cat[i], of_stack[i]}) {
      EXPECT_EQ(g.dtype(), dtypes[i]) << i;
      EXPECT_EQ(g.shape(), (Shape{1, 3}));
      EXPECT_EQ(ints(g), ints(dy.narrow(0, static_cast<int64_t>(i), 1))) << i;
    }
  }
}

TEST(Copies, CatStackRepeatFlip) {
  const Tensor a = counting({2, 2}), b = counting({2, 1}) + 10;
  EXPECT_EQ(ints(cat({a, b}, 1)), (Ints{0, 1, 10, 2, 3, 11}));
  EXPECT_EQ(ints(cat({a, b.T()})), (Ints{0, 1, 2, 3, 10, 11}));
  EXPECT_EQ(cat({a, b.to(i64)}, 1).dtype(), f32);
  EXPECT_EQ(cat({a.to(bf16), b}, -1).dtype(), f32);
  EXPECT_EQ(ints(stack({a, a + 4}, 1)), (Ints{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(ints(stack({tensor(1), tensor(2)}, -1)), (Ints{1, 2}));
  EXPECT_EQ(ints(repeat(tensor({1, 2}), {2, 3})), (Ints{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(ints(repeat(counting({2, 2}), {1, 2})), (Ints{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(repeat(a, {0, 1}).shape(), (Shape{0, 2}));
  EXPECT_FALSE(shares(repeat(a, {1, 1}), a));
  EXPECT_EQ(ints(flip(a, {0, 1})), (Ints{3, 2, 1, 0}));
  EXPECT_EQ(ints(flip(a, {-1})), (Ints{1, 0, 3, 2}));
  EXPECT_EQ(ints(flip(a.T(), {0})), (Ints{1, 3, 0, 2}));
}

TEST(Copies, Roll) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(ints(roll(x, 1)), (Ints{5, 0, 1, 2, 3, 4}));
  EXPECT_EQ(ints(x.roll(1, 0)), (Ints{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(ints(roll(x, {1, -1}, {0, 1})), (Ints{4, 5, 3, 1, 2, 0}));
  EXPECT_EQ(ints(roll(x, {1, 1}, {-1, -1})), (Ints{1, 2, 0, 4, 5, 3}));
  EXPECT_EQ(ints(roll(x, 100, 1)), (Ints{2, 0, 1, 5, 3, 4}));
  EXPECT_FALSE(shares(roll(x, 0, 0), x));
  EXPECT_EQ(ints(roll(tensor(3), 1)), (Ints{3}));
  EXPECT_EQ(error_of([&] {
              roll(x, {1, 2});
            }),
            "roll: expected a dimension for each shift, got shifts (1, 2) and dimensions ()");
  EXPECT_EQ(error_of([&] {
              roll(x, {1, 2}, 0);
            }),
            "roll: expected a dimension for each shift, got shifts (1, 2) and dimensions (0,)");
}

TEST(Copies, DiagonalsOfMatrices) {
  const Tensor v = counting({2}) + 1, x = counting({2, 3});
  EXPECT_EQ(ints(diag(v)), (Ints{1, 0, 0, 2}));
  EXPECT_EQ(ints(v.diag(1)), (Ints{0, 1, 0, 0, 0, 2, 0, 0, 0}));
  EXPECT_EQ(ints(diag(v, -1)), (Ints{0, 0, 0, 1, 0, 0, 0, 2, 0}));
  EXPECT_EQ(ints(diag(x)), (Ints{0, 4}));
  EXPECT_EQ(ints(diag(x, 1)), (Ints{1, 5}));
  EXPECT_EQ(diag(x, 7).shape(), (Shape{0}));
  EXPECT_FALSE(shares(diag(x), x));
  EXPECT_EQ(diag(tensor({true})).dtype(), boolean);
  EXPECT_EQ(trace(x).item<int>(), 4);
  EXPECT_EQ(counting({2, 2}, i64).trace().dtype(), i64);
  EXPECT_EQ(error_of([&] { diag(tensor(1)); }), "diag: expected a vector or a matrix, got ()");
  EXPECT_EQ(error_of([&] { trace(v); }), "trace: expected a matrix, got (2,)");
}

TEST(Copies, Triangles) {
  const Tensor x = ones({2, 3}, i64);
  EXPECT_EQ(ints(tril(x)), (Ints{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(ints(tril(x, 1)), (Ints{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(ints(tril(x, -2)), (Ints{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ints(triu(x)), (Ints{1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(ints(triu(x, -1)), (Ints{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ints(triu(x, INT64_MAX)), (Ints{0, 0, 0, 0, 0, 0}));
  const auto kept = tril(full({2, 2}, NAN)).tolist();
  EXPECT_EQ(kept[1], 0);  // not 0 * NaN
}

TEST(Views, Errors) {
  const Tensor x = zeros({2, 3}), scalar = zeros({});
  EXPECT_EQ(error_of([&] { x.T().view({6}); }),
            "view: (3, 2) with strides (1, 3) cannot be seen as (6,) without a copy; use reshape, "
            "or contiguous() first");
  EXPECT_EQ(error_of([&] { x.view({4}); }),
            "view: (2, 3) has 6 elements and cannot be seen as (4,)");
  EXPECT_EQ(error_of([&] { x.view({-1, -1}); }), "view: only one size can be -1, got (-1, -1)");
  EXPECT_EQ(error_of([&] {
              x.view({-1, 4});
            }),
            "view: (2, 3) has 6 elements and cannot be seen as (-1, 4)");
  EXPECT_EQ(error_of([&] {
              zeros({0}).view({0, -1});
            }),
            "view: cannot infer the -1 in (0, -1) with a size of 0");
  EXPECT_EQ(error_of([&] {
              x.reshape({-2, 3});
            }),
            "reshape: expected sizes of 0 or more (or one -1), got (-2, 3)");
  EXPECT_EQ(error_of([&] { x.permute({0}); }), "permute: expected 2 dimensions, got (0,)");
  EXPECT_EQ(error_of([&] { x.permute({0, -2}); }), "permute: dimension 0 is repeated in (0, -2)");
  EXPECT_EQ(error_of([&] { x.transpose(0, 2); }),
            "transpose: dimension 2 is out of range for shape (2, 3)");
  EXPECT_EQ(error_of([&] { x.unsqueeze(4); }),
            "unsqueeze: dimension 4 is out of range for shape (2, 3)");
  EXPECT_EQ(error_of([&] { x.expand({3, 3}); }), "expand: (2, 3) cannot be expanded to (3, 3)");
  EXPECT_EQ(error_of([&] { x.expand({3}); }), "expand: (2, 3) has more dimensions than (3,)");
  EXPECT_EQ(error_of([&] {
              x.expand({-1, 2, 3});
            }),
            "expand: (2, 3) cannot be expanded to (-1, 2, 3)");
  EXPECT_EQ(error_of([&] { x.select(0, -3); }),
            "select: index -3 is out of range for dimension 0 of (2, 3)");
  EXPECT_EQ(error_of([&] { scalar.select(0, 0); }),
            "select: a scalar has no dimension to select from");
  EXPECT_EQ(error_of([&] { x.narrow(1, 2, 2); }),
            "narrow: 2 elements from 2 on are out of range for dimension 1 of (2, 3)");
  EXPECT_EQ(error_of([&] { scalar.narrow(0, 0, 1); }),
            "narrow: a scalar has no dimension to narrow");
  EXPECT_EQ(error_of([&] { slice(x, 0, 1, 0, -1); }),
            "slice: expected a positive step, got -1; use flip to reverse");
  EXPECT_EQ(error_of([&] { slice(scalar, 0, 0, 1); }), "slice: a scalar has no dimension to slice");
  EXPECT_EQ(error_of([&] { x.index({0, 0, 0}); }), "index: 3 indices for (2, 3)");
  EXPECT_EQ(error_of([&] {
              x.index({Ellipsis, Ellipsis});
            }),
            "index: only one Ellipsis is possible");
  EXPECT_EQ(error_of([&] { x.flatten(1, 0); }), "flatten: dimension 1 comes after 0");
  EXPECT_EQ(error_of([&] { split(x, 0); }), "split: expected a positive size, got 0");
  EXPECT_EQ(error_of([&] {
              split(x, Ints{1, 2});
            }),
            "split: expected sizes that add up to dimension 0 of (2, 3), got a sum of 3");
  EXPECT_EQ(error_of([&] { split(x, Ints{3, -1}); }), "split: expected sizes of 0 or more, got -1");
  EXPECT_EQ(error_of([&] { split(scalar, 1); }), "split: a scalar has no dimension to split");
  EXPECT_EQ(error_of([&] { chunk(x, 0); }), "chunk: expected a positive number of chunks, got 0");
  EXPECT_EQ(error_of([&] { chunk(scalar, 2); }), "chunk: a scalar has no dimension to split");
}

TEST(Copies, Errors) {
  const Tensor x = zeros({2, 3}), scalar = zeros({});
  EXPECT_EQ(error_of([&] { cat({}); }), "cat: expected at least one tensor");
  EXPECT_EQ(error_of([&] { cat({scalar}); }),
            "cat: scalars have no dimension to join along; use stack");
  EXPECT_EQ(error_of([&] {
              cat({x, zeros({2, 4})});
            }),
            "cat: expected shapes that differ in dimension 0 alone, got (2, 3) and (2, 4)");
  EXPECT_EQ(error_of([&] {
              cat({x, zeros({3})});
            }),
            "cat: expected shapes that differ in dimension 0 alone, got (2, 3) and (3,)");
  EXPECT_EQ(error_of([&] { stack({}); }), "stack: expected at least one tensor");
  EXPECT_EQ(error_of([&] {
              stack({x, scalar});
            }),
            "stack: expected tensors of one shape, got (2, 3) and ()");
  EXPECT_EQ(error_of([&] { repeat(x, {2}); }),
            "repeat: expected a count for each dimension of (2, 3), got (2,)");
  EXPECT_EQ(error_of([&] {
              repeat(x, {2, -1});
            }),
            "repeat: expected counts of 0 or more, got (2, -1)");
  EXPECT_EQ(error_of([&] { flip(x, {1, -1}); }), "flip: dimension 1 is named twice in (1, -1)");
  EXPECT_EQ(error_of([&] { tril(scalar); }), "tril: expected a matrix or a batch of them, got ()");
  EXPECT_EQ(error_of([&] { triu(zeros({3})); }),
            "triu: expected a matrix or a batch of them, got (3,)");
}

}  // namespace
}  // namespace ink
