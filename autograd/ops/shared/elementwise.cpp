#include "autograd/ops/shared/elementwise.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/kernels/elementwise.h"
#include "autograd/loops/strided_loop.h"

namespace ink {

// The dimensions of a result, the outermost first. Of two, the first input that repeats neither
// decides which one lies outside of the other, by its strides (PyTorch: TensorIterator's
// reorder_dimensions). inputs: expanded to the shape.
static Shape order_of(const Shape& shape, const std::vector<Array>& inputs) {
  // 1 if dimension a must lie outside of b, -1 if inside, 0 if no input decides
  const auto compare = [&](int64_t a, int64_t b) {
    for (const Array& x : inputs) {
      const int64_t of_a = x.strides()[a], of_b = x.strides()[b];
      if (of_a == 0 || of_b == 0) continue;
      if (of_a != of_b) return of_a < of_b ? -1 : 1;
      if (shape[a] > shape[b]) return 1;
    }
    return 0;
  };
  Shape dims = shape;  // the innermost first
  for (int64_t i = 0; i < shape.size(); ++i) {
    dims[i] = shape.size() - 1 - i;
    for (int64_t j = i, k = i - 1; k >= 0; --k) {
      const int order = compare(dims[k], dims[j]);
      if (order < 0) break;
      if (order > 0) {
        std::swap(dims[j], dims[k]);
        j = k;
      }
    }
  }
  std::reverse(dims.begin(), dims.end());
  return dims;
}

Tensor empty_result(const Shape& shape, const Options& options,
                    std::initializer_list<const Tensor*> inputs) {
  bool row_major = true;
  for (const Tensor* x : inputs) {
    row_major = x->is_contiguous();
    if (!row_major || x->shape() == shape) break;
  }
  if (row_major || shape.numel() == 0) return empty(shape, options);
  std::vector<Array> expanded;
  for (const Tensor* x : inputs) expanded.push_back(x->array().expanded(shape));
  return Tensor(empty_in_order(shape, order_of(shape, expanded), options.dtype, options.device));
}

Tensor value_of(UnaryOp op, const Tensor& x) {
  Tensor y = empty_result(x.shape(), x.options(), {&x});
  kernel::unary(y, x, op);
  return y;
}

Tensor value_of(BinaryOp op, const Tensor& x, double number) {
  Tensor y = empty_result(x.shape(), x.options(), {&x});
  kernel::binary_number(y, x, number, op);
  return y;
}

}  // namespace ink
