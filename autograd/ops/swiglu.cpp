// swiglu, the gated unit of Llama's MLP. Shazeer 2020, eq. 5 (Swish_1).
//   y = silu(g) u,   s = 1 / (1 + e^-g)
//   dg = dy u s (1 + g (1 - s)),   du = dy silu(g)
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/map.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

namespace cpu {

void swiglu_backward(Array& dgate, const Array& dy, const Array& gate, const Array& up) {
  for_computed("swiglu_backward", gate.dtype(), [&]<class C>(C) {
    map(
        dgate, [](C g, C x, C u) { return formula::silu::df(g * u, x); }, dy, gate, up);
  });
}

}  // namespace cpu

static Tensor swiglu_composed(const Tensor& gate, const Tensor& up) {
  if (gate.dtype() == bf16) return swiglu_composed(gate.to(f32), up.to(f32)).to(bf16);
  return silu(gate) * up;
}

// silu(gate) up
static Tensor gated(const Tensor& gate, const Tensor& up) {
  Tensor y = empty_result(gate.shape(), gate.options(), {&gate});
  kernel::binary(y, gate, up, BinaryOp::swiglu);
  return y;
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  check_defined("swiglu", gate, up);
  INK_CHECK(gate.is_floating() && gate.dtype() == up.dtype() && gate.shape() == up.shape(),
            "swiglu: expected gate and up of one shape and one floating dtype, got ", gate.dtype(),
            " ", gate.shape(), " and ", up.dtype(), " ", up.shape());
  if (composed()) return swiglu_composed(gate, up);
  const Saved saved_gate = Saved::input(gate), saved_up = Saved::input(up);
  const auto vjp = [saved_gate, saved_up](const Tensor& dy, VjpContext& g) -> Grads {
    const Tensor x = *saved_gate, u = *saved_up;
    if (grad_enabled())
      return differentiate([](auto& in) { return swiglu_composed(in[0], in[1]); }, {x, u}, dy);
    Tensor dgate;
    if (g.needs(0)) {
      dgate = empty_result(x.shape(), x.options(), {&x});
      kernel::swiglu_backward(dgate, dy, x, u);
    }
    return {dgate, g.needs(1) ? gated(x, dy) : Tensor()};
  };
  return record("swiglu", {gate, up}, gated(gate, up), vjp,
                [saved_gate, saved_up] { return gated(*saved_gate, *saved_up); });
}

}  // namespace ink
