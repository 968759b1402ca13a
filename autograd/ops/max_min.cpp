// amax, amin: the largest and smallest values. max, min, argmax, argmin: also their places.
#include <optional>

#include "autograd/kernels/lines.h"
#include "autograd/kernels/reduce.h"
#include "autograd/loops/map.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

namespace cpu {
namespace {

// The first place of `best`, which occurs, among n elements `step` apart: in vectors, then one by
// one.
template <class T>
int64_t place_of(T best, const T* x, int64_t n, int64_t step) {
  using Value = compute_t<T>;
  const auto value = static_cast<Value>(best);
  const auto same = [=](T element) {
    const auto other = static_cast<Value>(element);
    return other == value || (other != other && value != value);
  };
  constexpr int64_t kRun = 64;
  int64_t i = 0;
  for (int found = 0; step == 1 && i + kRun <= n; i += kRun) {
    const T* run = x + i;
#pragma omp simd reduction(| : found)
    for (int64_t k = 0; k < kRun; ++k) found |= same(run[k]);
    if (found) break;
  }
  while (!same(x[i * step])) ++i;
  return i;
}

// Finds the places line by line.
void places_by_line(Array& values, Array& indices, const Array& x, int64_t dim) {
  const Array x0 = first_of_lines(x, dim);
  const StridedLoop<3> loop(values.shape(), {&values, &indices, &x0});
  const int64_t n = x.shape()[dim], step = x.strides()[dim];
  int64_t* where = indices.mutable_data<int64_t>();
  for_any(x.dtype(), [&]<class T>(T) {
    T* out = values.mutable_data<T>();
    const T* in = x.data<T>();
    const auto lines = [&](auto offset, int64_t count) {
      for (int64_t line = 0; line < count; ++line) {
        T& best = out[offset[0] + line * loop.inner_stride(0)];
        const T* from = in + offset[2] + line * loop.inner_stride(2);
        const int64_t place = place_of(best, from, n, step);
        where[offset[1] + line * loop.inner_stride(1)] = place;
        best = from[place * step];  // which of 0 and -0 came first
      }
    };
    loop.for_each_row(lines, kGrain / n);
  });
}

// Finds the places in many lines side by side: from the last element to the first, those of the
// lines where it is the best value.
void places_by_element(Array& values, Array& indices, const Array& x, int64_t dim) {
  for (int64_t i = x.shape()[dim] - 1; i >= 0; --i) {
    for_any(x.dtype(), [&]<class T>(T) {
      using Value = compute_t<T>;
      const auto place = [i](int64_t before, Value v, Value best) {
        return (v == best) | ((v != v) & (best != best)) ? i : before;
      };
      map(indices, place, indices, part_along(x, dim, i, 1), values);
    });
  }
  gather(values, x, indices, dim, "max");  // which of 0 and -0 came first
}

}  // namespace

void arg_reduce(Array& values, Array& indices, const Array& x, int64_t dim, bool largest) {
  reduce(values, x, largest ? ReduceOp::max : ReduceOp::min);
  // Along the innermost dimension, every pass of places_by_element reads the memory of all of x.
  const int64_t few = size_of(x.dtype()) > 4 ? 8 : 32, many_lines = 256;
  if (values.numel() >= many_lines && (x.strides()[dim] != 1 || x.shape()[dim] <= few))
    return places_by_element(values, indices, x, dim);
  places_by_line(values, indices, x, dim);
}

}  // namespace cpu

namespace {

// y = the largest (smallest) of x over dims.   dx = dy, shared evenly among the elements equal to y
// (As in PyTorch, NaN equals NaN in max and min, but amax and amin then have a gradient of NaN.)
Tensor extreme(const char* op, ReduceOp which, const Tensor& x, const Shape& dims, Flag keepdim,
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
ValuesIndices best(const char* op, const Tensor& x, int64_t dim, Flag keepdim, bool largest) {
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

Tensor best_index(const char* op, const Tensor& x, std::optional<int64_t> dim, Flag keepdim,
                  bool largest) {
  check_defined(op, x);
  const NoGrad no_grad;
  if (dim) return best(op, x, *dim, keepdim, largest).indices;
  INK_CHECK(x.numel() > 0, op, ": ", x.shape(), " has no elements to choose from");
  const Tensor index = best(op, reshape(x, {-1}), 0, false, largest).indices;
  return keepdim ? reshape(index, Shape::filled(x.dim(), 1)) : index;
}

}  // namespace

Tensor amax(const Tensor& x, const Shape& dims, Flag keepdim) {
  return extreme("amax", ReduceOp::max, x, dims, keepdim, false);
}
Tensor amin(const Tensor& x, const Shape& dims, Flag keepdim) {
  return extreme("amin", ReduceOp::min, x, dims, keepdim, false);
}
Tensor max(const Tensor& x) {
  return shown_as("max.1", extreme("max", ReduceOp::max, x, {}, false, true));
}
Tensor min(const Tensor& x) {
  return shown_as("min.1", extreme("min", ReduceOp::min, x, {}, false, true));
}

ValuesIndices max(const Tensor& x, NumberOf<int64_t> dim, Flag keepdim) {
  return best("max", x, dim, keepdim, true);
}
ValuesIndices min(const Tensor& x, NumberOf<int64_t> dim, Flag keepdim) {
  return best("min", x, dim, keepdim, false);
}
Tensor argmax(const Tensor& x, std::optional<NumberOf<int64_t>> dim, Flag keepdim) {
  return best_index("argmax", x, dim, keepdim, true);
}
Tensor argmin(const Tensor& x, std::optional<NumberOf<int64_t>> dim, Flag keepdim) {
  return best_index("argmin", x, dim, keepdim, false);
}

}  // namespace ink
