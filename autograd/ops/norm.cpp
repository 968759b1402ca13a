// norm: the p-norm of a vector.
#include <cmath>

#include "autograd/kernels/reduce.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

static Tensor value(const Tensor& x, double p, const ReducedShape& shape, Flag keepdim) {
  const NoGrad no_grad;
  if (x.dtype() == bf16) return to(value(to(x, f32), p, shape, keepdim), bf16);
  if (p == 2) {
    Tensor y = empty(shape.kept, x.options());
    kernel::reduce(y, x, ReduceOp::sum_of_squares);
    return sqrt(shape.finish(y, keepdim));
  }
  const Shape& dims = shape.dims;
  const Tensor size = abs(x);
  if (p == 1) return sum(size, dims, keepdim);
  if (p == inf) return amax(size, dims, keepdim);
  if (p == -inf) return amin(size, dims, keepdim);
  if (p == 0) return to(sum(x != 0, dims, keepdim), x.dtype());
  return pow(sum(pow(size, p), dims, keepdim), 1 / p);
}

// y = (sum |x|^p)^(1/p); p = inf, -inf: the largest, smallest |x|; p = 0: how many are not 0.
// dx = dy sign(x) (|x| / y)^(p - 1), and 0 where y = 0; p = +-inf: elements with |x| = y share it
Tensor norm(const Tensor& x, NumberOf<double> order, const Shape& dims, Flag keepdim) {
  const double p = order;
  const ReducedShape shape("norm", x, dims);
  INK_CHECK(x.is_floating(), "norm: expected a floating dtype, got ", x.dtype());
  if (std::isinf(p) || p < 0) shape.check_not_empty("norm");
  const Tensor y = value(x, p, shape, keepdim);
  const auto vjp = [=, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
    const Tensor v = *x, size = abs(v), norms = shape.keep(*y), g = shape.keep(dy);
    if (p == 0) return {zeros_like(v)};
    if (p == 1) return {g * sign(v)};
    const Tensor none = norms == 0, divisor = masked_fill(norms, none, 1);
    if (p == 2) return {v * masked_fill(g / divisor, none, 0)};
    if (std::isinf(p)) {
      const Tensor ties =
          to((size == norms) | isnan(size), v.dtype());  // NaN counts, as in PyTorch
      return {sign(v) * ties * (g / sum(ties, shape.dims, true))};
    }
    const Tensor zero = v == 0;
    const Tensor scaled = sign(v) * masked_fill(pow(masked_fill(size, zero, 1), p - 1), zero, 0);
    return {scaled * masked_fill(g / pow(divisor, p - 1), none, 0)};
  };
  return shown_as("linalg_vector_norm", record("norm", {x}, y, vjp));
}

}  // namespace ink
