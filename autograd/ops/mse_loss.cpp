// mse_loss: the mean squared error.
//   y      = mean (or sum) of d^2, d = input - target
//   dinput = dy 2 d / n (n = 1 unless it is a mean), dtarget = -dinput
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

Tensor mse_loss(const Tensor& left, const Tensor& right, Reduction reduction) {
  check_defined("mse_loss", left, right);
  const DType dtype = promote(left.dtype(), right.dtype());  // a scalar is broadcast first
  INK_CHECK(is_floating(dtype), "mse_loss: expected a floating dtype, got ", dtype);
  const Tensor input = to(left, dtype), target = to(right, dtype);
  broadcast_shapes("mse_loss", input.shape(), target.shape());
  const bool averaged = reduction == Reduction::mean;
  Tensor d, y;
  {
    const NoGrad no_grad;
    d = input - target;
    const Tensor squares = d * d;
    y = reduction == Reduction::none ? squares : averaged ? mean(squares) : sum(squares);
  }
  const double scale = averaged ? 2.0 / static_cast<double>(d.numel()) : 2.0;
  return record("mse_loss", {input, target}, y,
                [scale, a = Saved::input(input), b = Saved::input(target), sa = input.shape(),
                 sb = target.shape()](const Tensor& dy, VjpContext& g) -> Grads {
                  const Tensor dinput = dy * (*a - *b) * scale;
                  return {g.needs(0) ? sum_to(dinput, sa) : Tensor(),
                          g.needs(1) ? sum_to(neg(dinput), sb) : Tensor()};
                });
}

}  // namespace ink
