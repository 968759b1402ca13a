// var, std: the spread of the elements around their mean.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "autograd/kernels/reduce.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/reduce_loop.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

namespace cpu {
namespace {

// Count, mean and the sum of squared distances from the mean, in one pass and without cancellation.
// Chan, Golub, LeVeque 1979, eq. 2.1.
template <class T>
struct Moments {
  using Element = T;
  using Result = T;
  struct Acc {
    double count, mean, m2;
  };
  double correction;
  bool root;

  static Acc none() { return {0, 0, 0}; }
  static void merge(Acc& a, const Acc& b) {
    if (b.count == 0) return;  // distances of large means are infinite, and times 0 NaN
    const double count = a.count + b.count, share = b.count / count;
    const double apart = b.mean - a.mean, mean = a.mean + apart * share;
    a = {count, mean, a.m2 + b.m2 + apart * (b.mean - mean) * b.count};
  }
  static void add(Acc& acc, const T* p) { merge(acc, {1, static_cast<double>(*p), 0}); }
  static void add_eight(Acc& acc, const T* p, int64_t row) {
    const auto at = [=](int64_t i) { return static_cast<double>(p[i * row]); };
    const double mean = detail::tree_of_eight(at, std::plus<>()) / 8;
    const auto squared = [=](int64_t i) { return (at(i) - mean) * (at(i) - mean); };
    merge(acc, {8, mean, detail::tree_of_eight(squared, std::plus<>())});
  }
  static void repeat(Acc& acc, int64_t times) {
    acc.count *= static_cast<double>(times);
    acc.m2 *= static_cast<double>(times);
  }
  Result result(const Acc& seen) const {
    const double var = seen.m2 / std::max(seen.count - correction, 0.0);
    return static_cast<Result>(root ? std::sqrt(var) : var);
  }
};

}  // namespace

void reduce_var(Array& y, const Array& x, double correction, bool root) {
  for_computed("var", x.dtype(), [&]<class C>(C) {
    reduce_loop(Moments<C>{correction, root}, y, x);
  });
}

}  // namespace cpu

// dy 2 (x - mean) / (n - correction). As in PyTorch, over all elements and n <= correction it is
// infinite, or NaN where x is the mean.
static Tensor var_gradient(const Tensor& dy, const Tensor& x, const ReducedShape& shape,
                           double correction, bool of_all) {
  const double n = static_cast<double>(shape.count) - correction;
  const Tensor center = mean(x, shape.dims, true);
  if (!of_all || n > 0) return shape.keep(dy * (2 / n)) * (x - center);
  return shape.keep(dy) * where(x == center, full_like(x, std::nan("")), full_like(x, inf));
}

// y = sum (x - mean)^2 / (n - correction), or its root.
// dx = dvar 2 (x - mean) / (n - correction), dvar = dy, or of the root dy / (2 y), 0 where y is 0
static Tensor spread(const char* op, const Tensor& x, const Shape& dims, double correction,
                     Flag keepdim, bool root) {
  const ReducedShape shape(op, x, dims);
  INK_CHECK(x.is_floating(), op, ": expected a floating dtype, got ", x.dtype());
  Tensor kept = empty(shape.kept, x.options());
  kernel::reduce_var(kept, x, correction, root);
  const Tensor y = shape.finish(kept, keepdim);
  const auto vjp = [=, all = dims.empty() || x.dim() == 0, x = Saved::input(x),
                    y = Saved::output(root ? y : Tensor())](const Tensor& dy) -> Grads {
    const Tensor dvar = root ? masked_fill(dy / (*y * 2), *y == 0, 0) : dy;
    return {var_gradient(dvar, *x, shape, correction, all)};
  };
  return record(op, {x}, y, vjp);
}

Tensor var(const Tensor& x, const Shape& dims, NumberOf<double> correction, Flag keepdim) {
  return spread("var", x, dims, correction, keepdim, false);
}
Tensor std(const Tensor& x, const Shape& dims, NumberOf<double> correction, Flag keepdim) {
  return spread("std", x, dims, correction, keepdim, true);
}

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Shape& dims, NumberOf<double> correction,
                                   Flag keepdim) {
  ReducedShape("var_mean", x, dims);  // so that an error has our name
  return {shown_as("var_mean", var(x, dims, correction, keepdim)),
          shown_as("var_mean", mean(x, dims, keepdim))};
}

}  // namespace ink
