// gather, scatter, scatter_add, index_select, index and one_hot: values, order, error texts.
#include <gtest/gtest.h>
#include <omp.h>

#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

using Ints = std::vector<int64_t>;
Ints ints(const Tensor& x) { return x.tolist<int64_t>(); }

TEST(Index, Values) {
  const Tensor x = arange(15).view({5, 3});
  EXPECT_EQ(ints(index_select(x, 0, tensor({4, 0, 4}))), (Ints{12, 13, 14, 0, 1, 2, 12, 13, 14}));
  EXPECT_EQ(ints(index_select(x, 1, tensor({2, 0}))), (Ints{2, 0, 5, 3, 8, 6, 11, 9, 14, 12}));
  EXPECT_EQ(ints(index_select(x.T(), 1, tensor({1}))), (Ints{3, 4, 5}));
  EXPECT_EQ(ints(x.index(tensor({{1, -1}}))), (Ints{3, 4, 5, 12, 13, 14}));
  EXPECT_EQ(x.index(tensor({{1, -1}})).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(x.index(tensor(2)).shape(), (Shape{3}));
  EXPECT_EQ(x.index(zeros({2, 0}, i64)).shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(ints(gather(x, 0, tensor({{1, 2}, {3, 4}}))), (Ints{3, 7, 9, 13}));
  EXPECT_EQ(ints(gather(x, -1, tensor({{2}, {1}}))), (Ints{2, 4}));
  EXPECT_EQ(ints(scatter_add(zeros({3, 2}, i64), 0, tensor({{0, 1}, {0, 1}}), ones({2, 2}, i64))),
            (Ints{2, 0, 0, 2, 0, 0}));
  EXPECT_EQ(ints(one_hot(tensor({{0, 2}}), 3)), (Ints{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(one_hot(tensor(1), 3).shape(), (Shape{3}));
  EXPECT_NE(error_of([] { one_hot(tensor({-1})); }).find("index -1 is out"), std::string::npos);
  EXPECT_EQ(one_hot(tensor({2, 0}), -1).shape(), (Shape{2, 3})) << "one more than the largest id";
  EXPECT_EQ(x.index({Slice(), tensor(2)}).storage().get(), x.storage().get())
      << "an id selects, as a number does";
  const Tensor rows = tensor({{0, 1, 2}, {3, 4, 0}}), cols = tensor({{2, 1, 0}, {0, 1, 2}});
  EXPECT_EQ(x.index({rows, cols}).shape(), (Shape{2, 3}));
  EXPECT_EQ(ints(x.index({rows, cols})), (Ints{2, 4, 6, 9, 13, 2}));
  const Tensor deep = arange(30).view({2, 5, 3});
  EXPECT_EQ(ints(deep.index({Slice(), rows, cols})),
            (Ints{2, 4, 6, 9, 13, 2, 17, 19, 21, 24, 28, 17}));
  Tensor y = zeros({5, 3}, i64);
  y.index_put_({rows}, arange(18).view({2, 3, 3}));
  EXPECT_EQ(ints(y), (Ints{15, 16, 17, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
}

// Many sources for few places, with rows and without: the sums are exact integers, so any lost or
// doubled addition shows.
TEST(Index, ScatterAddLosesNothing) {
  const int64_t n = 50000;
  std::vector<int64_t> places(static_cast<size_t>(n));
  Ints expected(7);
  for (int64_t i = 0; i < n; ++i) {
    places[static_cast<size_t>(i)] = i * i % 7;
    expected[static_cast<size_t>(i * i % 7)] += i % 10;
  }
  const Tensor ids = from_vector(places);
  const Tensor source = from_vector(ints(arange(static_cast<double>(n)))) -
                        (arange(static_cast<double>(n)).to(f64) / 10).to(i64) * 10;
  EXPECT_EQ(ints(scatter_add(zeros({7}, i64), 0, ids, source)), expected);
  const Shape wide{n, 3};
  const Tensor rows = scatter_add(zeros({7, 3}), 0, ids.unsqueeze(1).expand(wide),
                                  source.to(f32).unsqueeze(1).expand(wide));
  EXPECT_EQ(ints(rows.select(1, 0)), expected);
  EXPECT_EQ(ints(rows.select(1, 2)), expected);
}

// However many threads share the places, each id has one owner, also the last and the first of a
// part. Sources in rows, apart from one another, and one by one take different loops.
TEST(Index, EveryPlaceHasOneOwnerForAnyNumberOfThreads) {
  const int64_t n = 60000;
  const int before = omp_get_max_threads();
  for (const int64_t places : {2, 7, 12}) {
    Ints all, expected(static_cast<size_t>(places)), last(static_cast<size_t>(places));
    for (int64_t i = 0; i < n; ++i) {
      all.push_back(i * i % 11 % places);
      expected[static_cast<size_t>(all.back())] += i % 10;
      last[static_cast<size_t>(all.back())] = i;
    }
    const Tensor ids = from_vector(all), count = arange(static_cast<double>(n), i64),
                 source = (count - (count.to(f64) / 10).to(i64) * 10).to(f64);
    const Tensor columns = ids.unsqueeze(1).expand({n, 3}),
                 wide = source.unsqueeze(1).expand({n, 3});
    for (const int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      const std::string what = std::to_string(places) + " " + std::to_string(threads);
      EXPECT_EQ(ints(scatter_add(zeros({places}, f64), 0, ids, source)), expected) << what;
      for (const Tensor& rows : {wide, wide.contiguous()}) {
        const Tensor y = scatter_add(zeros({places, 3}, f64), 0, columns, rows);
        for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(ints(y.select(1, j)), expected) << what;
      }
      const Tensor apart = scatter_add(zeros({places, 3}, f64), 0, columns.contiguous(), wide);
      for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(ints(apart.select(1, j)), expected) << what;
      // Without sums, the last of equal ids stays.
      EXPECT_EQ(ints(scatter(zeros({places}, i64), 0, ids, count)), last) << what;
      const Tensor in_rows = count.unsqueeze(1).expand({n, 3});
      for (const Tensor& at : {columns, columns.contiguous()}) {
        const Tensor y = scatter(zeros({places, 3}, i64), 0, at, in_rows);
        for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(ints(y.select(1, j)), last) << what;
      }
    }
    omp_set_num_threads(before);
  }
}

// Many ids a line, in few lines: a GPU sorts each line's.
TEST(Index, LinesHaveIdsOfTheirOwn) {
  const int64_t n = 300, columns = 3, places = 11;
  Ints ids, source, expected(places * columns), last(places * columns);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      ids.push_back((i * i + 5 * j) % places);
      source.push_back((i + j) % 10);
      last[static_cast<size_t>(ids.back() * columns + j)] = source.back();
      expected[static_cast<size_t>(ids.back() * columns + j)] += source.back();
    }
  }
  const Tensor at = from_vector(ids).view({n, columns}), x = from_vector(source).view({n, columns});
  EXPECT_EQ(ints(scatter_add(zeros({places, columns}, f64), 0, at, x.to(f64))), expected);
  const Tensor across = scatter_add(zeros({columns, places}, f64), 1, at.T(), x.to(f64).T());
  EXPECT_EQ(ints(across.T()), expected);
  EXPECT_EQ(ints(scatter(zeros({places, columns}, i64), 0, at, x)), last);
  EXPECT_EQ(ints(scatter(zeros({columns, places}, i64), 1, at.T(), x.T()).T()), last);
}

// Of equal ids the last counts, so the others' sources have no gradient. (PyTorch's have.)
TEST(Index, ScatterDifferentiatesWhatItWrote) {
  Tensor x = zeros({3, 2}).requires_grad_(), source = ones({3, 2}).requires_grad_();
  const Tensor dy = arange(6).view({3, 2}).to(f32) + 1;
  const Tensor ids = tensor({{2, 0}, {2, 1}, {0, 1}}), rows = tensor({1, 2, 1});
  sum(scatter(x, 0, ids, source) * dy).backward();
  EXPECT_EQ(ints(x.grad()), (Ints{0, 0, 3, 0, 0, 6}));
  EXPECT_EQ(ints(source.grad()), (Ints{0, 2, 5, 0, 1, 4}));
  x.set_grad({});
  source.set_grad({});
  sum(index_put(x, {rows}, source) * dy).backward();
  EXPECT_EQ(ints(x.grad()), (Ints{1, 2, 0, 0, 0, 0}));
  EXPECT_EQ(ints(source.grad()), (Ints{0, 0, 5, 6, 3, 4}));
  x.set_grad({});
  sum(scatter(x, 1, ids.narrow(0, 0, 1) * 0, 7) * dy).backward();
  EXPECT_EQ(ints(x.grad()), (Ints{0, 2, 3, 4, 5, 6}));
}

TEST(Index, IdsWithoutElementsMayHaveAnyShape) {
  const Tensor x = arange(6).view({3, 2}), none = zeros({0}, i64), wide = zeros({0, 5}, i64);
  for (const Tensor& ids : {none, wide}) {
    EXPECT_EQ(ints(scatter_add(x, 0, ids, ids)), ints(x));
    EXPECT_EQ(ints(scatter(x, 0, ids, ids)), ints(x));
    EXPECT_EQ(ints(scatter(x, 1, ids, 7)), ints(x));
    EXPECT_EQ(gather(x, 0, ids).shape(), ids.shape());
  }
}

TEST(Index, RepeatedIdsSumTheirGradients) {
  Tensor x = arange(6).view({3, 2}).to(f32);
  x.requires_grad_();
  sum(x.index(tensor({2, 0, 2})) * tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}})).backward();
  EXPECT_EQ(ints(x.grad()), (Ints{3, 4, 0, 0, 6, 8}));
}

// The op, not the shape that would have been made.
TEST(Index, Bf16GradientsAreSummedInF32) {
  const Tensor x = zeros({2, 2}, bf16).requires_grad_(), ids = zeros({1000}, i64);
  for (const Tensor& y : {gather(x, 0, ids.unsqueeze(1).expand({1000, 2})), x.index(ids),
                          x.index({ids}), index_select(x, 0, ids)})
    EXPECT_EQ(grad({sum(y)}, {x})[0].tolist(), (std::vector<double>{1000, 1000, 0, 0}));
}

TEST(Index, NinthDimensionsAreRefusedByName) {
  const Tensor x = ones({1, 1, 1, 1, 1, 1, 1, 1}), ids = zeros(x.shape(), i64);
  const std::string rest = ": the result would have 9 dimensions; a tensor has at most 8";
  EXPECT_EQ(error_of([&] { unsqueeze(x, 0); }), "unsqueeze" + rest);
  EXPECT_EQ(error_of([&] { stack({x}); }), "stack" + rest);
  EXPECT_EQ(error_of([&] { one_hot(ids, 2); }), "one_hot" + rest);
  EXPECT_EQ(error_of([&] { embedding(ids, ones({2, 3})); }), "embedding" + rest);
  EXPECT_EQ(error_of([&] { ones({1, 1}).index(ids); }), "index" + rest);
}

// As in PyTorch, such a mask indexes a new dimension of size 1.
TEST(Index, MasksWithoutDimensions) {
  const Tensor x = arange(6).view({2, 3}), yes = tensor(true), no = tensor(false);
  EXPECT_EQ(x[yes].shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(ints(x.index(yes)), ints(x));
  EXPECT_EQ(x.index(no).shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(tensor(5).index(yes).shape(), (Shape{1}));
  EXPECT_EQ(x.index({Slice(), yes}).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(x.index({Ellipsis, no}).shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(ints(x.index({yes, tensor({1, 0})})), (Ints{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(ints(x.clone().index_put_({yes}, 7)), Ints(6, 7));
  EXPECT_EQ(ints(x.clone().index_put_({no}, 7)), ints(x));
  EXPECT_EQ(ints(x.clone().index_put_({1, yes}, 7, true)), (Ints{0, 1, 2, 10, 11, 12}));
  const Tensor w = ones({2}).requires_grad_();
  sum(w.index(yes) * tensor({{2.0, 3.0}})).backward();
  EXPECT_EQ(ints(w.grad()), (Ints{2, 3}));
  EXPECT_EQ(error_of([&] {
              index(w, {tensor({0}), tensor({0}), yes});
            }),
            "index: more ids than the dimensions of (2, 1)");
}

TEST(Index, Errors) {
  const Tensor x = zeros({5, 3}), scalar = zeros({}), seven = tensor({7}), one = tensor({{1}});
  EXPECT_EQ(error_of([&] { index_select(x, 0, seven); }),
            "index_select: index 7 is out of range for dimension 0 of (5, 3)");
  EXPECT_EQ(error_of([&] {
              index_select(x, -1, tensor({0, -1}));
            }),
            "index_select: index -1 is out of range for dimension 1 of (5, 3)");
  EXPECT_EQ(error_of([&] { index_select(x, 0, one); }),
            "index_select: expected ids of one dimension, got (1, 1)");
  EXPECT_EQ(error_of([&] { index_select(x, 0, zeros({2})); }),
            "index_select: expected int64 ids, got float32");
  EXPECT_EQ(error_of([&] { index_select(scalar, 0, seven); }),
            "index_select: index 7 is out of range for dimension 0 of (1,)");
  EXPECT_EQ(error_of([&] {
              x.index(tensor({0, -6}));
            }),
            "index: index -6 is out of range for dimension 0 of (5, 3)");
  EXPECT_EQ(error_of([&] { x.index(tensor({true})); }),
            "index: expected a mask whose sizes are those of (5, 3) from dimension 0 on, got (1,)");
  EXPECT_EQ(error_of([&] { scalar.index(seven); }),
            "index: a scalar has no dimension to choose from");
  EXPECT_EQ(error_of([&] { gather(x, 1, one * 3); }),
            "gather: index 3 is out of range for dimension 1 of (5, 3)");
  EXPECT_EQ(error_of([&] { gather(x, 0, seven); }),
            "gather: expected ids of as many dimensions as the tensor (5, 3), got (1,)");
  EXPECT_EQ(error_of([&] {
              gather(x, 0, zeros({1, 4}, i64));
            }),
            "gather: expected ids no larger than (5, 3) outside dimension 0, got (1, 4)");
  EXPECT_EQ(error_of([&] { gather(scalar, 0, seven); }),
            "gather: index 7 is out of range for dimension 0 of (1,)");
  EXPECT_EQ(error_of([&] {
              scatter_add(x, 0, one * 5, zeros({1, 1}));
            }),
            "scatter_add: index 5 is out of range for dimension 0 of (5, 3)");
  EXPECT_EQ(error_of([&] {
              scatter_add(x, 0, zeros({2, 1}, i64), zeros({1, 1}));
            }),
            "scatter_add: expected a source no smaller than the ids, (2, 1), got (1, 1)");
  EXPECT_EQ(error_of([&] { scatter_add(x, 0, one, one); }),
            "scatter_add: expected a source of dtype float32, got int64");
  EXPECT_EQ(error_of([&] {
              scatter_add(x, 1, zeros({6, 1}, i64), zeros({6, 1}));
            }),
            "scatter_add: expected ids no larger than (5, 3) outside dimension 1, got (6, 1)");
  EXPECT_EQ(error_of([&] { scatter_add(scalar, 0, one, one); }),
            "scatter_add: expected ids of as many dimensions as the tensor (1,), got (1, 1)");
  EXPECT_EQ(error_of([&] {
              one_hot(tensor({0, 3}), 3);
            }),
            "one_hot: index 3 is out of range for dimension 1 of (2, 3)");
  EXPECT_EQ(
      error_of([&] { one_hot(tensor({0}), 0); }),
      "one_hot: expected a positive number of classes, or -1 for one more than the largest id, "
      "got 0");
}

}  // namespace
}  // namespace ink
