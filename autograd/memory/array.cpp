#include "autograd/memory/array.h"

namespace ink {

Array Array::empty(const Shape& shape, DType dtype, Device device, const char* op) {
  for (int64_t size : shape) INK_CHECK(size >= 0, op, ": expected sizes of 0 or more, got ", shape);
  int64_t bytes = 0, most = INT64_MAX - (1 << 30);  // allocators round up
  INK_CHECK(!__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes) && bytes < most, op,
            ": the size in bytes of ", shape, " ", dtype, " overflows 64 bits");
  return {std::make_shared<Storage>(bytes, device), {shape, contiguous_strides(shape), 0}, dtype};
}

int64_t Array::size(int64_t d) const {
  INK_CHECK(dim() > 0, "size: a scalar has no dimensions");
  return shape()[wrap_dim("size", d, shape())];
}

Array Array::transposed() const {
  Layout layout = layout_;
  const int64_t d = dim();
  std::swap(layout.sizes[d - 2], layout.sizes[d - 1]);
  std::swap(layout.strides[d - 2], layout.strides[d - 1]);
  return seen_as(layout);
}

Array Array::expanded(const Shape& shape) const {
  Layout layout{shape, Shape::filled(shape.size(), 0), layout_.offset};
  for (int64_t d = 1; d <= std::min(dim(), shape.size()); ++d) {
    const int64_t from = dim() - d, to = shape.size() - d;
    if (shape[to] == layout_.sizes[from]) layout.strides[to] = layout_.strides[from];
  }
  return seen_as(layout);
}

// A group of old dimensions that are contiguous among themselves can be split into new ones.
std::optional<Array> Array::reshaped(const Shape& shape) const {
  Layout layout{shape, contiguous_strides(shape), layout_.offset};
  if (is_contiguous()) return seen_as(layout);
  int64_t d = dim() - 1;         // of the old dimensions, from the right
  int64_t left = 1, stride = 1;  // elements left in their group; the stride of the next
  const Shape &sizes = layout_.sizes, &strides = layout_.strides;
  for (int64_t i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (left == 1) {
      while (d >= 0 && sizes[d] == 1) --d;
      if (d < 0) return {};
      stride = strides[d];
      left = sizes[d--];
      while (d >= 0 && (sizes[d] == 1 || strides[d] == stride * left)) left *= sizes[d--];
    }
    if (left % shape[i] != 0) return {};
    layout.strides[i] = stride;
    stride *= shape[i];
    left /= shape[i];
  }
  return seen_as(layout);
}

}  // namespace ink
