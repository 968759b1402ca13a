// sum, mean, any, all: reductions over any dimensions, and the kernel they share with prod and the
// extremes.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "autograd/kernels.h"
#include "autograd/loops/reduce_loop.h"
#include "autograd/ops.h"
#include "autograd/ops/reduce_dims.h"

namespace ink {

namespace cpu {
namespace {

// Each reduction folds with one operation, join: eight values of type Near in a tree, the results
// in type Far. Floats are summed far in double, so that a sum's error does not grow with its
// length.
template <class T>
using wide_t = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

template <class T>
struct Sum {
  using Near = std::conditional_t<std::is_same_v<T, bool>, int64_t, compute_t<T>>;
  using Far = wide_t<T>;
  static Near load(T x) { return static_cast<Near>(x); }
  static Far none() { return 0; }
  template <class V>
  static V join(V a, V b) {
    return a + b;
  }
  static Far repeated(Far a, int64_t times) { return a * static_cast<Far>(times); }
};

template <class T>
struct Prod {
  using Near = wide_t<T>;
  using Far = wide_t<T>;
  static Near load(T x) { return static_cast<Near>(static_cast<compute_t<T>>(x)); }
  static Far none() { return 1; }
  static Far join(Far a, Far b) { return a * b; }
  static Far repeated(Far a, int64_t times) {
    Far result = 1;  // by squaring
    for (; times > 0; times /= 2, a *= a) {
      if (times % 2) result *= a;
    }
    return result;
  }
};

// Of bools, max and min are any and all.
template <class T>
struct Max {
  using Near = std::conditional_t<std::is_same_v<T, bool>, uint8_t, compute_t<T>>;
  using Far = Near;
  using Limits = std::numeric_limits<Near>;
  static Near load(T x) { return static_cast<Near>(x); }
  static Far none() { return Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); }
  static Far join(Far a, Far b) {
    const Far larger = a > b ? a : b;  // b if either is NaN
    return a != a ? a : larger;
  }
  static Far repeated(Far a, int64_t) { return a; }
};

template <class T>
struct Min : Max<T> {
  using typename Max<T>::Far, typename Max<T>::Limits;
  static Far none() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
  static Far join(Far a, Far b) {
    const Far smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};

// The loop's view of a fold.
template <class F, class T>
struct Fold {
  using Acc = typename F::Far;
  static Acc none() { return F::none(); }
  template <class Width, class Step>
  static void one(Acc* acc, Width width, const T* p, Step step) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c)
      acc[c] = F::join(acc[c], static_cast<Acc>(F::load(p[c * step])));
  }
  static Acc of_eight(const T* p, int64_t row) {
    const auto at = [=](int64_t i) { return F::load(p[i * row]); };
    return static_cast<Acc>(
        detail::tree_of_eight(at, [](auto a, auto b) { return F::join(a, b); }));
  }
  template <class Width, class Step>
  static void eight(Acc* acc, Width width, const T* p, Step step, int64_t row) {
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) acc[c] = F::join(acc[c], of_eight(p + c * step, row));
  }
  static void merge(Acc& acc, const Acc& other) { acc = F::join(acc, other); }
  static void repeat(Acc& acc, int64_t times) { acc = F::repeated(acc, times); }
};

// y = the fold of x, divided by `divisor`.
template <class To, class F, class T>
void fold(Array& y, const Array& x, T, F, int64_t divisor = 1) {
  To* out = y.mutable_data<To>();
  reduce_loop<Fold<F, T>, T>(y, x, [=](int64_t i, typename F::Far total, const T*) {
    out[i] = static_cast<To>(total / static_cast<typename F::Far>(divisor));
  });
}

}  // namespace

void reduce(Array& y, const Array& x, ReduceOp op) {
  for_any(x.dtype(), [&]<class T>(T) {
    using To = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;  // of sums
    const int64_t count = x.numel() / std::max<int64_t>(y.numel(), 1);
    switch (op) {
      case ReduceOp::sum:
        return fold<To>(y, x, T(), Sum<T>());
      case ReduceOp::mean:
        return fold<To>(y, x, T(), Sum<T>(), count);
      case ReduceOp::prod:
        return fold<To>(y, x, T(), Prod<T>());
      case ReduceOp::max:
        return fold<T>(y, x, T(), Max<T>());
      case ReduceOp::min:
        return fold<T>(y, x, T(), Min<T>());
    }
  });
}

}  // namespace cpu

// y = sum of x over dims.   dx = dy expanded
Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  const ReducedShape shape("sum", x, dims);
  Tensor y = empty(shape.kept, {x.is_floating() ? x.dtype() : i64, x.device()});
  kernel::reduce(y, x, ReduceOp::sum);
  return record("sum", {x}, shape.finish(y, keepdim),
                [shape](const Tensor& dy) -> Grads { return {shape.spread(dy)}; });
}

// y = sum of x over dims / n.   dx = dy / n expanded
Tensor mean(const Tensor& x, const Shape& dims, bool keepdim) {
  INK_CHECK(x.is_floating(), "mean: expected a floating dtype, got ", x.dtype());
  const ReducedShape shape("mean", x, dims);
  Tensor y = empty(shape.kept, x.options());
  kernel::reduce(y, x, ReduceOp::mean);
  return record("mean", {x}, shape.finish(y, keepdim), [shape](const Tensor& dy) -> Grads {
    return {shape.spread(mul(dy, full({}, 1.0 / static_cast<double>(shape.count), dy.options())))};
  });
}

// any: not all are 0.   all: none is 0.   (of no elements: false, true)
static Tensor test(const char* op, ReduceOp which, const Tensor& x, const Shape& dims,
                   bool keepdim) {
  const ReducedShape shape(op, x, dims);
  const NoGrad no_grad;
  Tensor y = empty(shape.kept, {boolean, x.device()});
  kernel::reduce(y, to(x, boolean), which);
  return shape.finish(y, keepdim);
}
Tensor any(const Tensor& x, const Shape& dims, bool keepdim) {
  return test("any", ReduceOp::max, x, dims, keepdim);
}
Tensor all(const Tensor& x, const Shape& dims, bool keepdim) {
  return test("all", ReduceOp::min, x, dims, keepdim);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
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
