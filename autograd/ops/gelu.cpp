// gelu, the Gaussian error linear unit (Hendrycks and Gimpel 2016).
//   erf:   y = x Phi(x),   dx = dy (Phi(x) + x phi(x))
//          Phi, phi: the distribution function of the standard normal, and its density
//   tanh:  y = x (1 + tanh u) / 2,   dx = dy (1 + tanh u + x (1 - tanh^2 u) u') / 2
//          u = sqrt(2/pi) (x + 0.044715 x^3)
// and differentiated once more
//   erf:   phi(x) (2 - x^2)
//   tanh:  2 s' + x s'',   s = sigmoid(v), r = sigmoid(-v), v = 2u
//          s' = s r v',    s'' = s r ((r - s) v'^2 + v'')
#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

static Tensor gelu_composed(const Tensor& x, Gelu approximate) {
  if (x.dtype() == bf16) return gelu_composed(x.to(f32), approximate).to(bf16);  // rounded once
  if (approximate == Gelu::erf) return 0.5 * x * (1 + erf(x * 0.70710678118654752));
  return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

// gelu''(x), which loses no digits in either tail. It is 0 long before powers of x overflow.
static Tensor second_slope(const Tensor& input, Gelu approximate) {
  if (input.dtype() == bf16) return second_slope(input.to(f32), approximate);
  const Tensor x = clamp(input, -1e3, 1e3), z = x * x;
  if (approximate == Gelu::erf) return 0.39894228040143268 * exp(z * -0.5) * (2 - z);
  const Tensor v = x * (1.5957691216057308 + 0.071354816272600248 * z);
  const Tensor s = sigmoid(v), r = sigmoid(-v), dv = 1.5957691216057308 + 0.21406444881780074 * z;
  return s * r * (2 * dv + x * ((r - s) * square(dv) + 0.42812889763560149 * x));
}

// Its node is a gelu, too, because gelu's row in train/cases checks it.
Tensor gelu_backward(const Tensor& dy, const Tensor& x, Gelu approximate) {
  Tensor dx = empty_result(x.shape(), x.options(), {&x});
  kernel::unary_backward(dx, dy, x,
                         approximate == Gelu::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh);
  if (!grad_enabled()) return dx;
  return record("gelu", {dy, x}, dx,
                [dy = Saved::input(dy), x = Saved::input(x), approximate](const Tensor& ddx,
                                                                          VjpContext& g) -> Grads {
                  return {g.needs(0) ? gelu_backward(ddx, *x, approximate) : Tensor(),
                          g.needs(1) ? to(ddx * *dy * second_slope(*x, approximate), (*x).dtype())
                                     : Tensor()};
                });
}

Tensor gelu(const Tensor& input, Gelu approximate) {
  check_defined("gelu", input);
  INK_CHECK(input.is_floating(), "gelu: expected a floating dtype, got ", input.dtype());
  if (composed()) return gelu_composed(input, approximate);
  const UnaryOp op = approximate == Gelu::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh;
  const Saved x = Saved::input(input);
  const auto vjp = [x, approximate](const Tensor& dy) -> Grads {
    return {gelu_backward(dy, *x, approximate)};
  };
  return record("gelu", {input}, value_of(op, input), vjp, [op, x] { return value_of(op, *x); });
}

}  // namespace ink
