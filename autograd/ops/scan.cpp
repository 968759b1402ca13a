// cumsum, sort, topk: along one dimension, line by line.
#include <algorithm>
#include <utility>

#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/strided_loop.h"

namespace ink {

namespace cpu {
namespace {

// The first elements of all lines of x along `dim`, for a loop over lines.
Tensor heads(const Tensor& x, int64_t dim) {
  Layout layout = x.layout();
  layout.sizes[dim] = 1;
  return x.alias(layout);
}

template <class T>
struct Keyed {
  compute_t<T> key;
  int64_t index;
};

// Of equals the first comes first, whichever the direction; NaN is the largest.
template <class T>
bool before(const Keyed<T>& a, const Keyed<T>& b, bool descending) {
  if (a.key == b.key || (a.key != a.key && b.key != b.key)) return a.index < b.index;
  const bool less = a.key < b.key || b.key != b.key;
  return less != descending;
}

}  // namespace

void cumsum(Tensor& y, const Tensor& x, int64_t dim) {
  if (x.numel() == 0) return;
  const Tensor y0 = heads(y, dim), x0 = heads(x, dim);
  const StridedLoop<2> loop(y0.shape(), {&y0, &x0});
  const int64_t count = x.shape()[dim], next_y = y.strides()[dim], next_x = x.strides()[dim];
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  for_any(x.dtype(), [&]<class T>(T) {
    using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    constexpr int64_t kWidth = 64;  // lines side by side
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    const auto lines = [&](auto offset, int64_t n) {
      const int64_t width = sx < next_x ? kWidth : 1;  // or one by one, where that is contiguous
      for (int64_t i = 0; i < n; i += width) {
        const T* from = in + offset[1] + i * sx;
        T* to = out + offset[0] + i * sy;
        const int64_t side_by_side = std::min(width, n - i);
        Sum sums[kWidth] = {};
        for (int64_t j = 0; j < count; ++j, from += next_x, to += next_y) {
          for (int64_t k = 0; k < side_by_side; ++k) {
            sums[k] += static_cast<Sum>(from[k * sx]);
            to[k * sy] = static_cast<T>(sums[k]);
          }
        }
      }
    };
    loop.for_each_row(lines, kGrain / count);
  });
}

void sort(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending) {
  if (x.numel() == 0) return;
  const Tensor values0 = heads(values, dim), indices0 = heads(indices, dim), x0 = heads(x, dim);
  const StridedLoop<3> loop(x0.shape(), {&values0, &indices0, &x0});
  const int64_t count = x.shape()[dim], kept = values.shape()[dim];
  for_any(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = values.mutable_data<T>();
    int64_t* places = indices.mutable_data<int64_t>();
    const auto line = [&](std::vector<Keyed<T>>& keyed, T* value, int64_t* place, const T* from) {
      for (int64_t i = 0; i < count; ++i)
        keyed[static_cast<size_t>(i)] = {static_cast<compute_t<T>>(from[i * x.strides()[dim]]), i};
      const auto order = [=](auto& a, auto& b) { return before<T>(a, b, descending); };
      if (kept < count) std::nth_element(keyed.begin(), keyed.begin() + kept, keyed.end(), order);
      std::sort(keyed.begin(), keyed.begin() + kept, order);
      for (int64_t i = 0; i < kept; ++i) {
        value[i * values.strides()[dim]] = static_cast<T>(keyed[static_cast<size_t>(i)].key);
        place[i * indices.strides()[dim]] = keyed[static_cast<size_t>(i)].index;
      }
    };
    const auto lines = [&](auto offset, int64_t n) {
      std::vector<Keyed<T>> keyed(static_cast<size_t>(count));
      for (int64_t i = 0; i < n; ++i)
        line(keyed, out + offset[0] + i * loop.inner_stride(0),
             places + offset[1] + i * loop.inner_stride(1),
             in + offset[2] + i * loop.inner_stride(2));
    };
    loop.for_each_row(lines, kGrain / 8 / count);
  });
}

}  // namespace cpu

// y_i = x_0 + ... + x_i.   dx_i = dy_i + ... + dy_(n-1)
Tensor cumsum(const Tensor& x, int64_t dim) {
  const int64_t d = wrap_dim("cumsum", dim, x.shape());
  if (x.dim() == 0) return reshape(cumsum(reshape(x, {1}), 0), {});
  if (x.dtype() == boolean) return cumsum(to(x, i64), d);
  Tensor y = empty_like(x);
  kernel::cumsum(y, x, d);
  return record("cumsum", {x}, y,
                [d](const Tensor& dy) -> Grads { return {flip(cumsum(flip(dy, {d}), d), {d})}; });
}

namespace {

// values = the first k in order, indices = their places.   dx = dy at those places
ValuesIndices sorted(const char* op, const Tensor& x, int64_t d, int64_t k, bool descending) {
  Shape shape = x.shape();
  shape[d] = k;
  Tensor values = empty(shape, x.options()), indices = empty(shape, {i64, x.device()});
  kernel::sort(values, indices, x, d, descending);
  const auto vjp = [d, from = x.shape(), ids = Saved::input(indices)](const Tensor& dy) -> Grads {
    return {scatter_add(zeros(from, dy.options()), d, *ids, dy)};
  };
  return {record(op, {x}, values, vjp), indices};
}

// Of a scalar, by way of a line of one element.
template <class Op>
ValuesIndices as_line(const Tensor& x, Op op) {
  const auto [values, indices] = op(reshape(x, {1}));
  return {reshape(values, {}), reshape(indices, {})};
}

}  // namespace

ValuesIndices sort(const Tensor& x, int64_t dim, bool descending) {
  const int64_t d = wrap_dim("sort", dim, x.shape());
  if (x.dim() == 0) return as_line(x, [](const Tensor& line) { return sort(line); });
  return sorted("sort", x, d, x.shape()[d], descending);
}

ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const int64_t d = wrap_dim("topk", dim, x.shape()), n = x.dim() == 0 ? 1 : x.shape()[d];
  INK_CHECK(k >= 0 && k <= n, "topk: expected k between 0 and ", n, ", the size of dimension ", d,
            " of ", x.shape(), ", got ", k);
  if (x.dim() == 0 && k == 1) return as_line(x, [](const Tensor& line) { return topk(line, 1); });
  INK_CHECK(x.dim() > 0, "topk: expected k = 1 for a scalar, got 0");
  return sorted("topk", x, d, k, largest);
}

}  // namespace ink
