// gelu, the Gaussian error linear unit (Hendrycks and Gimpel 2016).
//   erf:   y = x Phi(x),   dx = dy (Phi(x) + x phi(x))
//          Phi, phi: the distribution function of the standard normal, and its density
//   tanh:  y = x (1 + tanh u) / 2,   dx = dy (1 + tanh u + x (1 - tanh^2 u) u') / 2
//          u = sqrt(2/pi) (x + 0.044715 x^3)
#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

static Tensor gelu_composed(const Tensor& x, Gelu approximate) {
  if (x.dtype() == bf16) return gelu_composed(x.to(f32), approximate).to(bf16);  // rounded once
  if (approximate == Gelu::erf) return 0.5 * x * (1 + erf(x * 0.70710678118654752));
  return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

Tensor gelu(const Tensor& input, Gelu approximate) {
  check_defined("gelu", input);
  INK_CHECK(input.is_floating(), "gelu: expected a floating dtype, got ", input.dtype());
  if (composed()) return gelu_composed(input, approximate);
  const UnaryOp op = approximate == Gelu::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh;
  const auto compute = [op](const Tensor& x) {
    Tensor y = empty_result(x.shape(), x.options(), {&x});
    kernel::unary(y, x, op);
    return y;
  };
  const Saved x = Saved::input(input);
  const auto vjp = [op, x, approximate](const Tensor& dy) -> Grads {
    const Tensor v = *x;
    if (grad_enabled())
      return differentiate([=](auto& in) { return gelu_composed(in[0], approximate); }, {v}, dy);
    Tensor dx = empty_result(v.shape(), v.options(), {&v});
    kernel::unary_backward(dx, dy, v, op);
    return {dx};
  };
  return record("gelu", {input}, compute(input), vjp, [compute, x] { return compute(*x); });
}

}  // namespace ink
