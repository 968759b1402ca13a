// amax, amin: the largest and smallest values. max, min, argmax, argmin: also their places.
#include <algorithm>
#include <optional>

#include "autograd/kernels/lines.h"
#include "autograd/kernels/reduce.h"
#include "autograd/loops/folds.h"
#include "autograd/loops/map.h"
#include "autograd/loops/reduce_loop.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

namespace cpu {
namespace {

// The best element so far and its address. Of equal elements the one with the lowest address is
// taken, which is the first along a dimension. NaN is better than any number.
template <class T, bool largest>
struct Best {
  using Value = compute_t<T>;
  struct Acc {
    Value value;
    const T* at;  // null: none yet
  };
  static Acc none() { return {Value(), nullptr}; }

  static void look(Acc& acc, const T* p) {
    const auto value = static_cast<Value>(*p);
    if (acc.at == nullptr || better<largest>(value, acc.value)) acc = {value, p};
  }
  template <class Width, class Step>
  static void one(Acc* acc, Width width, const T* p, Step step) {
    for (int64_t c = 0; c < width; ++c) look(acc[c], p + c * step);
  }
  static Value of_eight(const T* p, int64_t row) {
    const auto at = [=](int64_t i) { return static_cast<Value>(p[i * row]); };
    return detail::extreme_of_eight<Extreme<Value, largest>>(at);
  }
  // Takes the best of each eight first, in vectors. Nearly always it is no better than the best so
  // far.
  template <class Width, class Step>
  static void eight(Acc* acc, Width width, const T* p, Step step, int64_t row) {
    Value top[ReducePlan::kBlock];
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) top[c] = of_eight(p + c * step, row);
    for (int64_t c = 0; c < width; ++c) {
      if (acc[c].at != nullptr && !better<largest>(top[c], acc[c].value)) continue;
      for (int64_t i = 0; i < 8; ++i) look(acc[c], p + c * step + i * row);
    }
  }
  static void merge(Acc& acc, const Acc& other) {
    if (other.at == nullptr) return;
    const bool worse = acc.at == nullptr || better<largest>(other.value, acc.value);
    if (worse || (!better<largest>(acc.value, other.value) && other.at < acc.at)) acc = other;
  }
  static void repeat(Acc&, int64_t) {}
};

// The first place of `best`, which occurs, among x[0 .. n): in vectors, then one by one.
template <class T>
int64_t place_of(T best, const T* x, int64_t n) {
  using Value = compute_t<T>;
  const auto value = static_cast<Value>(best);
  const auto here = [=](int64_t i) {
    const auto other = static_cast<Value>(x[i]);
    return other == value || (other != other && value != value);
  };
  constexpr int64_t kRun = 64;
  int64_t i = 0;
  for (int found = 0; i + kRun <= n; i += kRun) {
#pragma omp simd reduction(| : found)
    for (int64_t k = i; k < i + kRun; ++k) found |= here(k);
    if (found) break;
  }
  while (!here(i)) ++i;
  return i;
}

// Along the innermost dimension: the best value of each line, and then its place.
void arg_reduce_lines(Array& values, Array& indices, const Array& x, int64_t dim, bool largest) {
  reduce(values, x, largest ? ReduceOp::max : ReduceOp::min);
  const Array x0 = first_of_lines(x, dim);
  const StridedLoop<3> loop(values.shape(), {&values, &indices, &x0});
  const int64_t n = x.shape()[dim];
  int64_t* where = indices.mutable_data<int64_t>();
  for_any(x.dtype(), [&]<class T>(T) {
    T* out = values.mutable_data<T>();
    const T* in = x.data<T>();
    const auto lines = [&](auto offset, int64_t count) {
      for (int64_t line = 0; line < count; ++line) {
        T& best = out[offset[0] + line * loop.inner_stride(0)];
        const T* from = in + offset[2] + line * loop.inner_stride(2);
        const int64_t place = place_of(best, from, n);
        where[offset[1] + line * loop.inner_stride(1)] = place;
        best = from[place];  // which of 0 and -0 came first
      }
    };
    loop.for_each_row(lines, kGrain / n);
  });
}

// Few elements of many lines: the best value of each line, and then, from the last element to the
// first, the lines where it is that value.
void arg_reduce_by_element(Array& values, Array& indices, const Array& x, int64_t dim,
                           bool largest) {
  reduce(values, x, largest ? ReduceOp::max : ReduceOp::min);
  for_any(x.dtype(), [&]<class T>(T) {
    Layout layout = x.layout();
    layout.sizes[dim] = 1;
    layout.offset += x.shape()[dim] * x.strides()[dim];
    for (int64_t i = x.shape()[dim] - 1; i >= 0; --i) {
      layout.offset -= x.strides()[dim];
      const auto place = [i](int64_t before, T element, T value) {
        const auto v = static_cast<compute_t<T>>(element), best = static_cast<compute_t<T>>(value);
        return (v == best) | ((v != v) & (best != best)) ? i : before;
      };
      map(indices, place, indices, x.seen_as(layout), values);
    }
  });
  gather(values, x, indices, dim, "max");  // which of 0 and -0 came first
}

}  // namespace

void arg_reduce(Array& values, Array& indices, const Array& x, int64_t dim, bool largest) {
  if (x.strides()[dim] == 1 && x.shape()[dim] >= ReducePlan::kShortRow)
    return arg_reduce_lines(values, indices, x, dim, largest);
  // Along the innermost dimension, every pass reads the memory of all of x.
  const bool innermost = x.strides()[dim] == 1;
  const int64_t few = !innermost ? 64 : size_of(x.dtype()) > 4 ? 8 : 32, many_lines = 256;
  if (x.shape()[dim] <= few && values.numel() >= many_lines)
    return arg_reduce_by_element(values, indices, x, dim, largest);
  const int64_t stride = std::max<int64_t>(x.strides()[dim], 1);
  int64_t* where = indices.mutable_data<int64_t>();
  for_any(x.dtype(), [&]<class T>(T) {
    T* out = values.mutable_data<T>();
    const auto write = [&](int64_t i, const auto& best, const T* first) {
      out[i] = static_cast<T>(best.value);
      where[i] = (best.at - first) / stride;
    };
    if (largest) {
      reduce_loop<Best<T, true>, T>(values, x, write);
    } else {
      reduce_loop<Best<T, false>, T>(values, x, write);
    }
  });
}

}  // namespace cpu

namespace {

// y = the largest (smallest) of x over dims.   dx = dy, shared evenly among the elements equal to y
// (As in PyTorch, NaN equals NaN in max and min, but amax and amin then have a gradient of NaN.)
Tensor extreme(const char* op, ReduceOp which, const Tensor& x, const Shape& dims, bool keepdim,
               bool nan_equals_nan) {
  const ReducedShape shape(op, x, dims);
  shape.check_not_empty(op);
  Tensor kept = empty(shape.kept, x.options());
  kernel::reduce(kept, x, which);
  const Tensor y = shape.finish(kept, keepdim);
  const auto vjp = [=, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
    const Tensor equal = eq(*x, shape.keep(*y));
    const Tensor ties = to(nan_equals_nan ? logical_or(equal, isnan(*x)) : equal, dy.dtype());
    return {shape.keep(dy) * ties / sum(ties, shape.dims, true)};
  };
  return record(op, {x}, y, vjp);
}

// values = the largest (smallest) of x along a dimension, indices = the first place of each.
// dx = dy at that place
ValuesIndices best(const char* op, const Tensor& x, int64_t dim, bool keepdim, bool largest) {
  check_defined(op, x);
  const int64_t d = wrap_dim(op, dim, x.shape());
  if (x.dim() == 0) return best(op, reshape(x, {1}), 0, false, largest);
  const ReducedShape shape(op, x, {d});
  shape.check_not_empty(op);
  Tensor values = empty(shape.kept, x.options()), indices = empty(shape.kept, {i64, x.device()});
  kernel::arg_reduce(values, indices, x, d, largest);
  const auto vjp = [shape, d, indices = Saved::input(indices)](const Tensor& dy) -> Grads {
    return {scatter_add(zeros(shape.from, dy.options()), d, *indices, shape.keep(dy))};
  };
  return {record(op, {x}, shape.finish(values, keepdim), vjp), shape.finish(indices, keepdim)};
}

Tensor best_index(const char* op, const Tensor& x, std::optional<int64_t> dim, bool keepdim,
                  bool largest) {
  check_defined(op, x);
  const NoGrad no_grad;
  if (dim) return best(op, x, *dim, keepdim, largest).indices;
  INK_CHECK(x.numel() > 0, op, ": ", x.shape(), " has no elements to choose from");
  const Tensor index = best(op, reshape(x, {-1}), 0, false, largest).indices;
  return keepdim ? reshape(index, Shape::filled(x.dim(), 1)) : index;
}

}  // namespace

Tensor amax(const Tensor& x, const Shape& dims, bool keepdim) {
  return extreme("amax", ReduceOp::max, x, dims, keepdim, false);
}
Tensor amin(const Tensor& x, const Shape& dims, bool keepdim) {
  return extreme("amin", ReduceOp::min, x, dims, keepdim, false);
}
Tensor max(const Tensor& x) {
  return shown_as("max.1", extreme("max", ReduceOp::max, x, {}, false, true));
}
Tensor min(const Tensor& x) {
  return shown_as("min.1", extreme("min", ReduceOp::min, x, {}, false, true));
}

ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  return best("max", x, dim, keepdim, true);
}
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  return best("min", x, dim, keepdim, false);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return best_index("argmax", x, dim, keepdim, true);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return best_index("argmin", x, dim, keepdim, false);
}

}  // namespace ink
