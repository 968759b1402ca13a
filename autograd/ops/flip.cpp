// flip: the elements in reverse order along dimensions.
#include <algorithm>

#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

// y[i] = x[n - 1 - i] along each of dims.   dx = dy flipped back
Tensor flip(const Tensor& x, const Shape& dims) {
  check_defined("flip", x);
  Layout reversed = x.layout();
  Shape seen = Shape::filled(std::max<int64_t>(x.dim(), 1), 0);
  for (int64_t dim : dims) {
    const int64_t d = wrap_dim("flip", dim, x.shape());
    INK_CHECK(!seen[d]++, "flip: dimension ", d, " is named twice in ", dims);
    if (x.dim() == 0 || x.shape()[d] == 0) continue;
    reversed.offset += (x.shape()[d] - 1) * x.strides()[d];
    reversed.strides[d] *= -1;  // never leaves this function: tensors have no negative strides
  }
  Tensor y = empty_result(x.shape(), x.options(), {&x});  // lies as x does
  kernel::copy(y, x.array().seen_as(reversed));
  return record("flip", {x}, y, [dims](const Tensor& dy) -> Grads { return {flip(dy, dims)}; });
}

}  // namespace ink
