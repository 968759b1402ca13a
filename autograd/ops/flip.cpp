// flip: the elements in reverse order along dimensions; roll: moved along them.
#include <algorithm>

#include "autograd/kernels/copy.h"
#include "autograd/more_ops.h"
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

// y[i] = x[(i - shift) mod n] along each of dims.   dx = dy moved back
Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims) {
  check_defined("roll", x);
  if (dims.empty() && shifts.size() == 1)
    return shown_as("roll", reshape(roll(x.flatten(), shifts, {0}), x.shape()));
  INK_CHECK(shifts.size() == dims.size() && !dims.empty(),
            "roll: expected a dimension for each shift, got shifts ", shifts, " and dimensions ",
            dims);
  INK_CHECK(x.dim() > 0, "roll: a scalar has no dimension to move along");
  Tensor y = x.detach();
  Shape back;
  for (int64_t i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim("roll", dims[i], x.shape()), n = x.shape()[d];
    back.push_back(-(shifts[i] % std::max<int64_t>(n, 1)));
    const int64_t start = back[i] < 0 ? n + back[i] : back[i];  // of y, in x
    if (start > 0 && start < n)
      y = cat({narrow(y, d, start, n - start), narrow(y, d, 0, start)}, d);
  }
  if (y.storage() == x.storage()) y = clone(y);
  return record("roll", {x}, y,
                [back, dims](const Tensor& dy) -> Grads { return {roll(dy, back, dims)}; });
}

}  // namespace ink
