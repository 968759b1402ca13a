// y = gelu(x W^T + b) V^T + c: the part of a transformer's block that treats each position by
// itself. gelu is its tanh form (gelu.cpp), as in GPT-2.
//   h = x W^T + b,  a = gelu(h),  y = a V^T + c
//   dV = dy^T a,  dc = sum of dy's rows,  dh = (dy V) gelu'(h)
//   dx, dW and db follow from dh as in linear
// It is recorded as two nodes: linear, and gelu_linear, which takes h to y. On a GPU, gelu is fused
// into the product that computes h, and its gradient into the product dy V. Under Autocast h, a and
// y are bf16, and gradients have the dtypes of their inputs.
#include <array>

#include "autograd/autocast.h"
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/gemm.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/kernels/gemm.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/linear.h"

namespace ink {

// h = x w + bias, a = gelu h
static void gemm_gelu(Array& a, Array& h, const Array& x, const Array& w, const Array& bias) {
  if (kernel::gemm_gelu(a, h, x, w, bias)) return;
  kernel::gemm_bias(h, x, w, bias);
  kernel::unary(a, h, UnaryOp::gelu_tanh);
}

// dh = (dy w) gelu'(h)
static void gemm_gelu_backward(Array& dh, const Array& dy, const Array& w, const Array& h) {
  if (kernel::gemm_gelu_backward(dh, dy, w, h)) return;
  kernel::gemm(dh, dy, w, false);
  kernel::unary_backward(dh, dh, h, UnaryOp::gelu_tanh);
}

static Tensor gelu_linear_composed(const Tensor& h, const Tensor& weight, const Tensor& bias) {
  return linear(gelu(h, Gelu::tanh), weight, bias);
}

// in: h in a's dtype; a: its gelu.
static Tensor gelu_linear(const Tensor& h, const Tensor& in, const Tensor& a, const Tensor& weight,
                          const Tensor& bias) {
  const Tensor y = linear_forward(a, weight, bias);
  const auto keep = [](bool needed, const Tensor& t) {
    return Saved::input(needed ? t : Tensor());
  };
  const bool again = context().recompute && weight.requires_grad();
  const Saved saved_h = keep(h.requires_grad() || again, in),
              saved_a = keep(weight.requires_grad() && !again, a),
              saved_weight = keep(h.requires_grad(), weight);
  const std::array dtypes{h.dtype(), weight.dtype(), bias.defined() ? bias.dtype() : y.dtype()};
  const auto vjp = [=, shape = in.shape(), dtype = in.dtype()](const Tensor& dy, VjpContext& g) {
    if (grad_enabled()) {  // the gradient will be differentiated; without h, a is a constant
      const Tensor before = *saved_h;
      const Tensor after = before.defined() ? gelu(before, Gelu::tanh) : *saved_a;
      Grads grads =
          linear_gradients(g, dy, after, *saved_weight, shape, {dtype, dtypes[1], dtypes[2]});
      if (g.needs(0)) grads[0] = gelu_backward(grads[0], before, Gelu::tanh).to(dtypes[0]);
      return grads;
    }
    const Array rows = as_gemm_operand(as_rows(dy), dy.dtype());
    Grads grads(3);
    const auto after = [&] {
      return again && g.needs(1) ? value_of(UnaryOp::gelu_tanh, *saved_h) : *saved_a;
    };
    linear_parameters(g, grads, rows, after(), dtypes);
    if (!g.needs(0)) return grads;
    const Tensor before = *saved_h, dh = empty_like(before);
    Array dh_rows = as_rows(dh);
    gemm_gelu_backward(dh_rows, rows, cached_cast(*saved_weight, dy.dtype()), as_rows(before));
    grads[0] = dh.to(dtypes[0]);
    return grads;
  };
  return record("gelu_linear", {h, weight, bias}, y, vjp);
}

Tensor gelu_linear(const Tensor& h, const Tensor& weight, const Tensor& bias) {
  check_defined("gelu_linear", h, weight);
  check_linear("gelu_linear", h, weight, bias);
  if (composed()) return gelu_linear_composed(h, weight, bias);
  const Tensor in = h.to(autocast(h.dtype())).contiguous();
  return gelu_linear(h, in, value_of(UnaryOp::gelu_tanh, in), weight, bias);
}

Tensor mlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
           const Tensor& proj_weight, const Tensor& proj_bias) {
  check_defined("mlp", x, fc_weight);
  if (!proj_weight.defined()) detail::fail_undefined("mlp", 4);
  check_linear("mlp", x, fc_weight, fc_bias);
  INK_CHECK(proj_weight.dim() == 2 && proj_weight.size(1) == fc_weight.size(0),
            "mlp: expected a proj_weight (out, ", fc_weight.size(0), ") for fc_weight ",
            fc_weight.shape(), ", got ", proj_weight.shape());
  check_linear("mlp", fc_weight.detach().T(), proj_weight, proj_bias);  // its dtype, and the bias
  // Under Recompute backward computes gelu again from h, and must get the same bits.
  if (composed() || context().recompute)
    return gelu_linear(linear(x, fc_weight, fc_bias), proj_weight, proj_bias);
  const DType dtype = autocast(x.dtype());
  const Tensor in = to(x, dtype);
  Shape shape = x.shape();
  shape.back() = fc_weight.size(0);
  Tensor h = empty(shape, in.options()), a = empty_like(h);
  Array h_rows = as_rows(h), a_rows = as_rows(a);
  gemm_gelu(a_rows, h_rows, as_rows(in), cached_cast(fc_weight, dtype).transposed(),
            fc_bias.defined() ? contiguous(fc_bias.array()) : Array());
  const Tensor before = record_linear(x, in, fc_weight, fc_bias, h);
  return gelu_linear(before, before, a, proj_weight, proj_bias);
}

}  // namespace ink
