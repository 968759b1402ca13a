// sum, mean, any, all: reductions over any dimensions. prod, amax and amin use the same kernel.
#include <algorithm>
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/reduce.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/folds.h"
#include "autograd/loops/reduce_loop.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

namespace cpu {
namespace {

// A fold (loops/folds.h) in the form that the loop takes; results are divided by `divisor`.
template <class F, class T>
struct Fold {
  using Element = T;
  using Result = T;
  using Acc = typename F::Far;
  int64_t divisor;

  static Acc none() { return F::none(); }
  static void add(Acc& acc, const T* p) { acc = F::join(acc, static_cast<Acc>(F::load(*p))); }
  static void add_eight(Acc& acc, const T* p, int64_t row) {
    const auto at = [=](int64_t i) { return F::load(p[i * row]); };
    if constexpr (requires { F::of_numbers; }) {
      acc = detail::extreme_of_eight<F>(acc, at);
    } else {
      const auto join = [](auto a, auto b) { return F::join(a, b); };
      acc = F::join(acc, static_cast<Acc>(detail::tree_of_eight(at, join)));
    }
  }
  static void merge(Acc& acc, const Acc& other) { acc = F::join(acc, other); }
  static void repeat(Acc& acc, int64_t times) { acc = F::repeated(acc, times); }
  Result result(Acc acc) const {
    if constexpr (std::is_integral_v<Acc>) return static_cast<Result>(acc);  // has no mean
    return static_cast<Result>(divisor == 1 ? acc : acc / static_cast<Acc>(divisor));
  }
};

// y = x combined by F, divided by `divisor`.
template <template <class> class F>
void fold_floats(Array& y, const Array& x, int64_t divisor = 1) {
  for_computed("reduce", x.dtype(), [&]<class C>(C) { reduce_loop(Fold<F<C>, C>{divisor}, y, x); });
}

// The same for any dtype. Sums and products of bools are int64.
template <template <class> class F>
void fold(Array& y, const Array& x) {
  if (x.is_floating()) return fold_floats<F>(y, x);
  reduce_loop(Fold<F<int64_t>, int64_t>{1}, y, x);
}

template <template <class> class F>
void extreme(Array& y, const Array& x) {
  if (x.dtype() == boolean) return reduce_loop(Fold<F<bool>, bool>{1}, y, x);
  fold<F>(y, x);
}

// y = x (f32 or f64) summed, with PyTorch's bits, divided by `divisor`.
void imitated_sum(Array& y, const Array& x, int64_t divisor) {
  for_computed("sum", x.dtype(), [&]<class T>(T) {
    sum_as_torch<T>(y, x);
    T* out = y.mutable_data<T>();
    for (int64_t i = 0; i < y.numel(); ++i) out[i] /= static_cast<T>(divisor);
  });
}

}  // namespace

void reduce(Array& y, const Array& x, ReduceOp op) {
  Layout once = x.layout();
  Shape results = y.shape();
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (once.strides[d] == 0 && y.size(d) > 1) once.sizes[d] = results[d] = 1;
  }
  if (!(results == y.shape())) {  // outputs along expanded dimensions are equal
    Array few = Array::empty(results, y.dtype());
    reduce(few, x.seen_as(once), op);
    return copy(y, few.expanded(y.shape()));
  }
  const int64_t count = x.numel() / std::max<int64_t>(y.numel(), 1);
  const bool is_sum = op == ReduceOp::sum || op == ReduceOp::mean;
  if (is_sum && context().imitate_torch && (x.dtype() == f32 || x.dtype() == f64))
    return imitated_sum(y, x, op == ReduceOp::mean ? count : 1);
  switch (op) {
    case ReduceOp::sum:
      return fold<Sum>(y, x);
    case ReduceOp::sum_of_squares:
      return fold_floats<SumOfSquares>(y, x);
    case ReduceOp::mean:
      return fold_floats<Sum>(y, x, count);
    case ReduceOp::prod:
      return fold<Prod>(y, x);
    case ReduceOp::max:
      return extreme<Max>(y, x);
    case ReduceOp::min:
      return extreme<Min>(y, x);
  }
}

}  // namespace cpu

// y = sum of x over dims.   dx = dy expanded
Tensor sum(const Tensor& x, const Shape& dims, Flag keepdim) {
  const ReducedShape shape("sum", x, dims);
  Tensor y = empty(shape.kept, {x.is_floating() ? x.dtype() : i64, x.device()});
  kernel::reduce(y, x, ReduceOp::sum);
  const auto vjp = [shape](const Tensor& dy) -> Grads { return {shape.spread(dy)}; };
  return shown_as(dims.empty() && !keepdim ? "sum" : "sum.1",
                  record("sum", {x}, shape.finish(y, keepdim), vjp));
}

// y = sum of x over dims / n.   dx = dy / n expanded
Tensor mean(const Tensor& x, const Shape& dims, Flag keepdim) {
  const ReducedShape shape("mean", x, dims);
  INK_CHECK(x.is_floating(), "mean: expected a floating dtype, got ", x.dtype());
  Tensor y = empty(shape.kept, x.options());
  kernel::reduce(y, x, ReduceOp::mean);
  const auto vjp = [shape](const Tensor& dy) -> Grads {
    const auto n = static_cast<double>(std::max<int64_t>(shape.count, 1));
    return {shape.spread(mul(dy, full({}, 1 / n, dy.options())))};
  };
  return shown_as(dims.empty() && !keepdim ? "mean" : "mean.1",
                  record("mean", {x}, shape.finish(y, keepdim), vjp));
}

// any: not all are 0.   all: none is 0.   (of no elements: false, true)
static Tensor test(const char* op, ReduceOp which, const Tensor& x, const Shape& dims,
                   Flag keepdim) {
  const ReducedShape shape(op, x, dims);
  const NoGrad no_grad;
  Tensor y = empty(shape.kept, {boolean, x.device()});
  kernel::reduce(y, to(x, boolean), which);
  return shape.finish(y, keepdim);
}
Tensor any(const Tensor& x, const Shape& dims, Flag keepdim) {
  return test("any", ReduceOp::max, x, dims, keepdim);
}
Tensor all(const Tensor& x, const Shape& dims, Flag keepdim) {
  return test("all", ReduceOp::min, x, dims, keepdim);
}

// The sum over all dimensions along which a tensor of this shape would be broadcast to x's.
Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", x);
  if (x.shape() == shape) return x;
  INK_CHECK(shape.size() <= x.dim() && broadcast_shapes("sum_to", x.shape(), shape) == x.shape(),
            "sum_to: ", shape, " does not broadcast to ", x.shape());
  Shape dims;
  const int64_t added = x.dim() - shape.size();
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d < added || (shape[d - added] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  }
  return reshape(dims.empty() ? x : sum(x, dims, true), shape);
}

}  // namespace ink
