// y = gelu(x W^T + b) V^T + c: the part of a transformer's block that looks at one position at a
// time. gelu is its tanh form (gelu.cpp), as in GPT-2.
//   h = x W^T + b,   a = gelu(h)
//   dV = dy^T a,  dc = sum of dy's rows,  dh = (dy V) gelu'(h)
//   dW = dh^T x,  db = sum of dh's rows,  dx = dh W
// One op, because what gelu does can be done to a product's tiles before they are written. Under
// Autocast x, both weights, h, a and y are bf16, and gradients have the dtypes of their inputs.
#include "autograd/autocast.h"
#include "autograd/gemm.h"
#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/linear.h"

namespace ink {

namespace cpu {

void gemm_gelu(Tensor& y, Tensor& h, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (bias.defined()) {
    gemm_bias(h, a, b, bias);
  } else {
    gemm(h, a, b, 1, false);
  }
  unary(y, h, UnaryOp::gelu_tanh);
}

void gemm_gelu_backward(Tensor& dh, const Tensor& dy, const Tensor& w, const Tensor& h) {
  gemm(dh, dy, w, 1, false);
  unary_backward(dh, dh, h, UnaryOp::gelu_tanh);
}

}  // namespace cpu

static Tensor mlp_composed(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& v,
                           const Tensor& c) {
  return linear(gelu(linear(x, w, b), Gelu::tanh), v, c);
}

Tensor mlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
           const Tensor& proj_weight, const Tensor& proj_bias) {
  check_linear("mlp", x, fc_weight, fc_bias);
  INK_CHECK(proj_weight.dim() == 2 && proj_weight.size(1) == fc_weight.size(0),
            "mlp: expected a second weight (out, ", fc_weight.size(0), ") for the first ",
            fc_weight.shape(), ", got ", proj_weight.shape());
  if (composed()) return mlp_composed(x, fc_weight, fc_bias, proj_weight, proj_bias);
  const DType dtype = autocast(x.dtype());
  const Tensor in = x.dtype() == dtype ? x : x.detach().to(dtype);
  const auto wider = [&](const Tensor& weight) {
    Shape shape = x.shape();
    shape.back() = weight.size(0);
    return empty(shape, in.options());
  };
  const Tensor h = wider(fc_weight), a = wider(fc_weight), y = wider(proj_weight);
  check_linear("mlp", a, proj_weight, proj_bias);
  {
    const NoGrad no_grad;
    const auto turned = [&](const Tensor& w) { return transpose(cached_cast(w, dtype), 0, 1); };
    Tensor h_rows = as_rows(h), a_rows = as_rows(a), y_rows = as_rows(y);
    kernel::gemm_gelu(a_rows, h_rows, as_rows(in), turned(fc_weight),
                      fc_bias.defined() ? fc_bias.contiguous() : fc_bias);
    if (proj_bias.defined()) {
      kernel::gemm_bias(y_rows, a_rows, turned(proj_weight), proj_bias.contiguous());
    } else {
      kernel::gemm(y_rows, a_rows, turned(proj_weight), 1, false);
    }
  }
  const auto wanted = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const auto keep = [](bool needed, const Tensor& t) {
    return Saved::input(needed ? t : Tensor());
  };
  const bool inner = wanted(x) || wanted(fc_weight) || wanted(fc_bias),
             remake = context().recompute;
  const Saved saved_x = keep(wanted(fc_weight), in), saved_fc = keep(wanted(x), fc_weight),
              saved_h = keep(inner || remake, h), saved_a = keep(wanted(proj_weight) && !remake, a),
              saved_proj = keep(inner, proj_weight);
  const std::array dtypes{x.dtype(), fc_weight.dtype(), fc_bias.defined() ? fc_bias.dtype() : dtype,
                          proj_weight.dtype(), proj_bias.defined() ? proj_bias.dtype() : dtype};
  const auto vjp = [=, shape = x.shape()](const Tensor& dy, VjpContext& g) {
    const Tensor dy_rows = as_gemm_operand(as_rows(dy), dy.dtype()), kept = *saved_h;
    Grads grads(5);
    if (g.needs(3)) {
      Tensor again = *saved_a;
      if (!again.defined()) {
        again = empty_like(kept);
        kernel::unary(again, kept, UnaryOp::gelu_tanh);
      }
      grads[3] = linear_dweight(g, 3, dy_rows, again, dtypes[3]);
    }
    if (g.needs(4)) grads[4] = linear_dbias(g, 4, dy_rows, dtypes[4]);
    if (!g.needs(0) && !g.needs(1) && !g.needs(2)) return grads;
    const Tensor before = as_rows(kept);
    Tensor dh = empty_like(before);
    kernel::gemm_gelu_backward(dh, dy_rows, cached_cast(*saved_proj, dy.dtype()), before);
    if (g.needs(1)) grads[1] = linear_dweight(g, 1, dh, *saved_x, dtypes[1]);
    if (g.needs(0)) grads[0] = linear_dx(g, 0, dh, *saved_fc, shape, dtypes[0]);
    if (g.needs(2)) grads[2] = linear_dbias(g, 2, dh, dtypes[2]);
    return grads;
  };
  return record_fused("mlp", {x, fc_weight, fc_bias, proj_weight, proj_bias}, y, vjp);
}

}  // namespace ink
