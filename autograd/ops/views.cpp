// Views: other layouts over the same storage. Each op computes a layout; its vjp is the opposite
// view, or a padding with zeros where elements were left out.
#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/kernels/copy.h"
#include "autograd/more_ops.h"

namespace ink {

// Replaces a -1 by the size that makes the number of elements fit.
static Shape infer_size(const char* op, const Tensor& x, Shape shape) {
  int64_t known = 1, unknown = -1;
  for (int64_t i = 0; i < shape.size(); ++i) {
    INK_CHECK(shape[i] >= -1, op, ": expected sizes of 0 or more (or one -1), got ", shape);
    INK_CHECK(shape[i] != -1 || unknown < 0, op, ": only one size can be -1, got ", shape);
    if (shape[i] == -1) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  const int64_t n = x.numel();
  if (unknown >= 0 && known > 0 && n % known == 0) shape[unknown] = n / known;
  INK_CHECK(unknown < 0 || known > 0, op, ": cannot infer the -1 in ", shape, " with a size of 0");
  INK_CHECK((unknown < 0 || shape[unknown] >= 0) && shape.numel() == n, op, ": ", x.shape(),
            " has ", n, " elements and cannot be seen as ", shape);
  return shape;
}

static Tensor seen_as(const Tensor& x, const Array& seen) {
  return record("view", {x}, x.alias(seen.layout()),
                [from = x.shape()](const Tensor& dy) -> Grads { return {reshape(dy, from)}; });
}

// The same elements in row-major order under other sizes.   dx = dy seen as x's shape
Tensor view(const Tensor& x, const Shape& sizes) {
  check_defined("view", x);
  const Shape shape = infer_size("view", x, sizes);
  const auto seen = x.array().reshaped(shape);
  INK_CHECK(seen, "view: ", x.shape(), " with strides ", x.strides(), " cannot be seen as ", shape,
            " without a copy; use reshape, or contiguous() first");
  return seen_as(x, *seen);
}

// The same, or a copy where no view is possible.
Tensor reshape(const Tensor& x, const Shape& sizes) {
  check_defined("reshape", x);
  const Shape shape = infer_size("reshape", x, sizes);
  if (const auto seen = x.array().reshaped(shape))
    return shown_as(x.is_contiguous() ? "view" : "reshape_alias", seen_as(x, *seen));
  Tensor y = empty(shape, x.options());
  Array in_order = *y.array().reshaped(x.shape());
  kernel::copy(in_order, x);
  const auto vjp = [from = x.shape()](const Tensor& dy) -> Grads { return {reshape(dy, from)}; };
  return shown_as("unsafe_view", record("reshape", {x}, y, vjp));
}

// y[j0, j1, ...] = x with dimension dims[i] at place i.   dx = dy permuted back
Tensor permute(const Tensor& x, const Shape& dims) {
  check_defined("permute", x);
  INK_CHECK(dims.size() == x.dim(), "permute: expected ", x.dim(), " dimensions, got ", dims);
  Layout layout = x.layout();
  Shape inverse = Shape::filled(dims.size(), -1);
  for (int64_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim("permute", dims[i], x.shape());
    INK_CHECK(inverse[d] == -1, "permute: dimension ", d, " is repeated in ", dims);
    inverse[d] = i;
    layout.sizes[i] = x.shape()[d];
    layout.strides[i] = x.strides()[d];
  }
  return record("permute", {x}, x.alias(layout),
                [inverse](const Tensor& dy) -> Grads { return {permute(dy, inverse)}; });
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  check_defined("transpose", x);
  const int64_t a = wrap_dim("transpose", dim0, x.shape()),
                b = wrap_dim("transpose", dim1, x.shape());
  Layout layout = x.layout();
  if (x.dim() > 0) {
    std::swap(layout.sizes[a], layout.sizes[b]);
    std::swap(layout.strides[a], layout.strides[b]);
  }
  return record("transpose", {x}, x.alias(layout),
                [a, b](const Tensor& dy) -> Grads { return {transpose(dy, a, b)}; });
}

// Without dimensions of size 1 (all of them, or the given one).
Tensor squeeze(const Tensor& x, std::optional<int64_t> dim) {
  check_defined("squeeze", x);
  Layout layout = x.layout();
  const int64_t only = dim ? wrap_dim("squeeze", *dim, x.shape()) : -1;
  for (int64_t d = x.dim() - 1; d >= 0; --d) {
    if (x.shape()[d] != 1 || (dim && d != only)) continue;
    layout.sizes.erase(d);
    layout.strides.erase(d);
  }
  const auto vjp = [from = x.shape()](const Tensor& dy) -> Grads { return {reshape(dy, from)}; };
  return shown_as(dim ? "squeeze.1" : "squeeze", record("squeeze", {x}, x.alias(layout), vjp));
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_defined("unsqueeze", x);
  INK_CHECK(dim >= -x.dim() - 1 && dim <= x.dim(), "unsqueeze: dimension ", dim,
            " is out of range for shape ", x.shape());
  check_dims("unsqueeze", x.dim() + 1);
  const int64_t d = dim < 0 ? dim + x.dim() + 1 : dim;
  Layout layout = x.layout();
  layout.sizes.insert(d, 1);
  layout.strides.insert(d, d < x.dim() ? x.shape()[d] * x.strides()[d] : 1);
  return record("unsqueeze", {x}, x.alias(layout),
                [d](const Tensor& dy) -> Grads { return {squeeze(dy, d)}; });
}

// Sizes of 1 repeated without a copy (stride 0), new dimensions in front.
// dx = dy summed over the repeats
Tensor expand(const Tensor& x, const Shape& sizes) {
  check_defined("expand", x);
  INK_CHECK(sizes.size() >= x.dim(), "expand: ", x.shape(), " has more dimensions than ", sizes);
  Shape shape = sizes;
  const int64_t added = sizes.size() - x.dim();
  for (int64_t i = 0; i < sizes.size(); ++i) {
    const int64_t d = i - added;
    if (sizes[i] == -1 && d >= 0) shape[i] = x.shape()[d];
    INK_CHECK(shape[i] >= 0 && (d < 0 || x.shape()[d] == shape[i] || x.shape()[d] == 1),
              "expand: ", x.shape(), " cannot be expanded to ", sizes);
  }
  return record("expand", {x}, x.alias(x.array().expanded(shape).layout()),
                [from = x.shape()](const Tensor& dy) -> Grads { return {sum_to(dy, from)}; });
}

// The gradient of a slice. It is added to the gradient that x already has, if there is one, so that
// many slices of one tensor cost no more than their own size. Else it is zeros of x's shape with dy
// in its places.
static Grads slice_gradient(const Tensor& dy, VjpContext& g, const Shape& shape, int64_t dim,
                            int64_t start, int64_t stop, int64_t step) {
  if (dy.shape() == shape) return {dy};  // of all of x
  if (Tensor sum = g.sum_so_far(0); sum.defined()) {
    slice(sum, dim, start, stop, step).add_(dy);
    return {sum};
  }
  return {slice_backward(dy, shape, dim, start, stop, step)};
}

// Elements start, start + step, ... of a dimension.   dx = zeros with dy at those places
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  check_defined("slice", x);
  INK_CHECK(x.dim() > 0, "slice: a scalar has no dimension to slice");
  INK_CHECK(step > 0, "slice: expected a positive step, got ", step, "; use flip to reverse");
  const int64_t d = wrap_dim("slice", dim, x.shape()), n = x.shape()[d];
  const auto clamped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t first = clamped(start), last = std::max(first, clamped(stop));
  Layout layout = x.layout();
  layout.offset += first * x.strides()[d];
  layout.sizes[d] = (last - first) / step + ((last - first) % step != 0);
  layout.strides[d] *= layout.sizes[d] > 1 ? step : 1;
  return record("slice", {x}, x.alias(layout),
                [=, from = x.shape()](const Tensor& dy, VjpContext& g) -> Grads {
                  return slice_gradient(dy, g, from, d, first, last, step);
                });
}

// The gradient of slice, itself an op: zeros of `shape` with x at the slice's places.
// dx = dy sliced
Tensor slice_backward(const Tensor& x, const Shape& shape, int64_t dim, int64_t start, int64_t stop,
                      int64_t step) {
  check_defined("slice_backward", x);
  Tensor y = zeros(shape, x.options());
  {
    const NoGrad no_grad;
    slice(y, dim, start, stop, step).copy_(x);
  }
  return record("slice_backward", {x}, y,
                [=](const Tensor& dy) -> Grads { return {slice(dy, dim, start, stop, step)}; });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_defined("narrow", x);
  INK_CHECK(x.dim() > 0, "narrow: a scalar has no dimension to narrow");
  const int64_t d = wrap_dim("narrow", dim, x.shape()), n = x.shape()[d];
  const int64_t first = start < 0 ? start + n : start;
  INK_CHECK(length >= 0 && first >= 0 && first <= n && length <= n - first, "narrow: ", length,
            " elements from ", start, " on are out of range for dimension ", d, " of ", x.shape());
  return slice(x, d, first, first + length, 1);
}

// The part of x at one index of a dimension, without that dimension.   dx = zeros with dy there
Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_defined("select", x);
  INK_CHECK(x.dim() > 0, "select: a scalar has no dimension to select from");
  const int64_t d = wrap_dim("select", dim, x.shape()), n = x.shape()[d];
  const int64_t i = index < 0 ? index + n : index;
  INK_CHECK(i >= 0 && i < n, "select: index ", index, " is out of range for dimension ", d, " of ",
            x.shape());
  Layout layout = x.layout();
  layout.offset += i * x.strides()[d];
  layout.sizes.erase(d);
  layout.strides.erase(d);
  return record("select", {x}, x.alias(layout),
                [d, i, from = x.shape()](const Tensor& dy, VjpContext& g) -> Grads {
                  return slice_gradient(unsqueeze(dy, d), g, from, d, i, i + 1, 1);
                });
}

// The elements (..., i, i + offset) of two dimensions, as a new last one.   dx = zeros with dy
// there
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diagonal", x);
  const int64_t a = wrap_dim("diagonal", dim1, x.shape()),
                b = wrap_dim("diagonal", dim2, x.shape());
  INK_CHECK(a != b, "diagonal: expected two dimensions, got ", dim1, " twice");
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  const int64_t n = std::min(x.shape()[a] - row, x.shape()[b] - column);
  Layout layout = x.layout();
  if (n > 0) layout.offset += row * x.strides()[a] + column * x.strides()[b];
  for (int64_t d : {std::max(a, b), std::min(a, b)}) {
    layout.sizes.erase(d);
    layout.strides.erase(d);
  }
  layout.sizes.push_back(std::max<int64_t>(n, 0));
  layout.strides.push_back(x.strides()[a] + x.strides()[b]);
  const auto vjp = [=, from = x.shape()](const Tensor& dy) -> Grads {
    Tensor dx = zeros(from, dy.options());
    diagonal(dx, offset, a, b).copy_(dy);
    return {dx};
  };
  return record("diagonal", {x}, x.alias(layout), vjp);
}

// y = zeros with x on a diagonal.   dx = that diagonal of dy
Tensor diag(const Tensor& x, int64_t offset) {
  check_defined("diag", x);
  INK_CHECK(x.dim() == 1 || x.dim() == 2, "diag: expected a vector or a matrix, got ", x.shape());
  if (x.dim() == 2) return shown_as("diagonal_copy", clone(diagonal(x, offset)));
  const int64_t n = x.shape()[0] + std::abs(offset);
  Tensor y = zeros({n, n}, x.options());
  diagonal(y, offset).copy_(x.detach());
  const auto vjp = [offset](const Tensor& dy) -> Grads { return {diagonal(dy, offset)}; };
  return shown_as("diag_embed", record("diag", {x}, y, vjp));
}

Tensor trace(const Tensor& x) {
  check_defined("trace", x);
  INK_CHECK(x.dim() == 2, "trace: expected a matrix, got ", x.shape());
  return shown_as("trace", sum(diagonal(x)));
}

static Layout windows_of(Layout layout, int64_t d, int64_t windows, int64_t size, int64_t step) {
  const int64_t stride = layout.sizes.empty() ? 1 : layout.strides[d];
  if (!layout.sizes.empty()) {
    layout.sizes[d] = windows;
    layout.strides[d] = step * stride;
  }
  layout.sizes.push_back(size);
  layout.strides.push_back(stride);
  return layout;
}

// Windows along a dimension, as a new last one.   dx = dy, added up where windows overlap
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  check_defined("unfold", x);
  check_dims("unfold", x.dim() + 1);
  const int64_t d = wrap_dim("unfold", dim, x.shape()), n = x.dim() > 0 ? x.shape()[d] : 1;
  INK_CHECK(size >= 0 && size <= n && step > 0, "unfold: expected a window of 0 to ", n,
            " elements and a positive step, got ", size, " and ", step);
  const int64_t windows = (n - size) / step + 1, apart = windows > 1 ? step : 1;
  const Layout whole{x.shape(), contiguous_strides(x.shape())};
  return record(
      "unfold", {x}, x.alias(windows_of(x.layout(), d, windows, size, apart)),
      [whole, part = windows_of(whole, d, windows, size, apart)](const Tensor& dy) -> Grads {
        const Tensor wide = dy.dtype() == bf16 ? to(dy, f32) : dy;  // windows may overlap
        return {to(detail::scatter_strided(wide, whole, part), dy.dtype())};
      });
}

}  // namespace ink
