// logsumexp over dimensions.
//   y  = log sum exp x
//   dx = dy exp(x - y)
// y is computed as m + log sum exp(x - m) with m = max x, so that nothing overflows.
#include <cmath>

#include "autograd/ops/shared/promote.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

Tensor logsumexp(const Tensor& input, const Shape& dims, bool keepdim) {
  const Tensor x = floating("logsumexp", input);
  const ReducedShape shape("logsumexp", x, dims);
  Tensor y;
  if (x.numel() == 0) {
    y = full(shape.kept, -INFINITY, x.options());  // log 0
  } else {
    const NoGrad no_grad;
    const Tensor top = amax(x, shape.dims, true);
    const Tensor m = masked_fill(top, abs(top) == INFINITY, 0);  // inf - inf would be NaN
    y = m + log(sum(exp(x - m), shape.dims, true));
  }
  y = shape.finish(y, keepdim);
  return record("logsumexp", {x}, y,
                [shape, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
                  return {shape.keep(dy) * exp(*x - shape.keep(*y))};
                });
}

}  // namespace ink
