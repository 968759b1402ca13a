// cat, stack, repeat: several tensors, or several copies of one, side by side in one.
#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

static void check_all(const char* op, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) detail::fail_undefined(op, static_cast<int>(i) + 1);
  }
}

// y = the tensors one after the other along a dimension.   dx_i = dy's part, a view of it
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  INK_CHECK(!tensors.empty(), "cat: expected at least one tensor");
  check_all("cat", tensors);
  // As in PyTorch, an empty tensor of shape (0,) goes with any others.
  const auto is_void = [](const Tensor& x) { return x.shape() == Shape{0}; };
  const auto first = std::find_if_not(tensors.begin(), tensors.end(), is_void);
  Shape shape = first == tensors.end() ? Shape{0} : first->shape();
  const Shape wanted = shape;
  INK_CHECK(shape.size() > 0, "cat: scalars have no dimension to join along; use stack");
  const int64_t d = wrap_dim("cat", dim, shape);
  DType dtype = tensors[0].dtype();  // they meet in that of one of them
  std::vector<Tensor> parts;
  shape[d] = 0;
  for (const Tensor& x : tensors) {
    dtype = promote(x.dtype(), dtype);
    if (is_void(x) && wanted.size() > 1) continue;
    Shape expected = shape;
    if (x.dim() == shape.size()) expected[d] = x.shape()[d];
    INK_CHECK(x.shape() == expected, "cat: expected shapes that differ in dimension ", d,
              " alone, got ", wanted, " and ", x.shape());
    shape[d] += x.shape()[d];
    parts.push_back(x);
  }
  Tensor y = empty(shape, {dtype, tensors[0].device()});
  Layout part = y.layout();
  std::vector<std::pair<int64_t, DType>> sizes;
  for (const Tensor& x : parts) {
    part.sizes[d] = x.shape()[d];
    Array place = y.array().seen_as(part);
    kernel::copy(place, x);
    part.offset += part.sizes[d] * part.strides[d];
    sizes.emplace_back(part.sizes[d], x.dtype());
  }
  return record("cat", parts, y, [d, sizes](const Tensor& dy, VjpContext& g) -> Grads {
    Grads dxs(sizes.size());
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (g.needs(i)) dxs[i] = to(narrow(dy, d, start, sizes[i].first), sizes[i].second);
      start += sizes[i].first;
    }
    return dxs;
  });
}

// The same along a new dimension.   dx_i = dy's layer i, a view of it
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  INK_CHECK(!tensors.empty(), "stack: expected at least one tensor");
  check_all("stack", tensors);
  const int64_t d = wrap_dim("stack", dim, Shape::filled(tensors[0].dim() + 1, 1));
  std::vector<Tensor> layers;
  std::vector<DType> dtypes;
  Tensor y;
  {
    const NoGrad no_grad;
    for (const Tensor& x : tensors) {
      INK_CHECK(x.shape() == tensors[0].shape(), "stack: expected tensors of one shape, got ",
                tensors[0].shape(), " and ", x.shape());
      layers.push_back(unsqueeze(x, d));
      dtypes.push_back(x.dtype());
    }
    y = cat(layers, d);
  }
  return record("stack", tensors, y, [d, dtypes](const Tensor& dy, VjpContext& g) -> Grads {
    Grads dxs(dtypes.size());
    for (size_t i = 0; i < dtypes.size(); ++i) {
      if (g.needs(i)) dxs[i] = to(select(dy, d, static_cast<int64_t>(i)), dtypes[i]);
    }
    return dxs;
  });
}

// y = times[d] copies of x along each dimension d (new dimensions in front).
// dx = dy summed over the copies
Tensor repeat(const Tensor& x, const Shape& times) {
  check_defined("repeat", x);
  INK_CHECK(times.size() >= x.dim(), "repeat: expected a count for each dimension of ", x.shape(),
            ", got ", times);
  for (int64_t n : times) INK_CHECK(n >= 0, "repeat: expected counts of 0 or more, got ", times);
  // Dimension by dimension, the last first: (outer, 1, inner) expanded to (outer, times, inner).
  Shape sizes = x.shape();
  while (sizes.size() < times.size()) sizes.insert(0, 1);
  Tensor y = reshape(x, sizes);
  for (int64_t d = sizes.size() - 1; d >= 0; --d) {
    if (times[d] == 1) continue;
    int64_t inner = 1, outer = 1;
    for (int64_t i = 0; i < sizes.size(); ++i) (i < d ? outer : inner) *= sizes[i];
    sizes[d] *= times[d];
    y = reshape(expand(reshape(y, {outer, 1, inner}), {outer, times[d], inner}), sizes);
  }
  return shown_as("repeat", y.storage() == x.storage() ? clone(y) : y);
}

}  // namespace ink
