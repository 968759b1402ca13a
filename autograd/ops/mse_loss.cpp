// mse_loss: the mean squared error.
//   y      = mean (or sum) of d^2, d = input - target
//   dinput = dy 2 d / n (n = 1 but for mean), dtarget = -dinput
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"

namespace ink {

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_defined("mse_loss", input, target);
  INK_CHECK(input.shape() == target.shape(), "mse_loss: expected a target of the input's shape ",
            input.shape(), ", got ", target.shape());
  INK_CHECK(input.is_floating() && target.dtype() == input.dtype(),
            "mse_loss: expected two tensors of one floating dtype, got ", input.dtype(), " and ",
            target.dtype());
  const bool averaged = reduction == Reduction::mean;
  const double scale = averaged ? 2.0 / static_cast<double>(input.numel()) : 2.0;
  Tensor y;
  {
    const NoGrad no_grad;
    const Tensor d = input - target, squares = d * d;
    y = reduction == Reduction::none ? squares : averaged ? mean(squares) : sum(squares);
  }
  return record("mse_loss", {input, target}, y,
                [scale, a = Saved::input(input), b = Saved::input(target)](const Tensor& dy,
                                                                           VjpContext& g) -> Grads {
                  const Tensor d = dy * (*a - *b) * scale;
                  return {d, g.needs(1) ? neg(d) : Tensor()};
                });
}

}  // namespace ink
