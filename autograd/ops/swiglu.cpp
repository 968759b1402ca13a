// swiglu, the gated unit of Llama's MLP. Shazeer 2020, eq. 5 (Swish_1).
//   y = silu(g) u,   s = 1 / (1 + e^-g)
//   dg = dy u s (1 + g (1 - s)),   du = dy silu(g)
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/pointwise.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

namespace cpu {

void swiglu_backward(Array& dgate, Array& dup, const Array& dy, const Array& gate,
                     const Array& up) {
  const int64_t n = gate.numel(), width = 512, whole = n / width * width;
  // Elements from `at` on, as rows.
  const auto rows_of = [&](const Array& x, int64_t at, int64_t rows, int64_t columns) {
    return x.defined() ? x.seen_as({{rows, columns}, {columns, 1}, x.layout().offset + at}) : x;
  };
  for_computed("swiglu_backward", gate.dtype(), [&]<class C>(C) {
    const auto run = [&](int64_t at, int64_t rows, int64_t columns) {
      const auto part = [&](const Array& x) { return rows_of(x, at, rows, columns); };
      Array to_gate = part(dgate), to_up = part(dup);
      const RowsIn<C> upstream(part(dy)), gates(part(gate)), ups(part(up));
      const RowsOut<C> of_gate(to_gate), of_up(to_up);
      for_each_row<C>(rows, columns, 5 * columns, [=](int64_t row, C* room) {
        const C *d = upstream.row(row, room), *g = gates.row(row, room + columns),
                *u = ups.row(row, room + 2 * columns);
        C *dg = of_gate.row(row, room + 3 * columns), *du = of_up.row(row, room + 4 * columns);
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) {
          const formula::Logistic<C> s(g[i]);
          const C silu = g[i] * s.value, slope = s.value + silu * s.rest;
          dg[i] = d[i] * u[i] * slope;
          du[i] = d[i] * silu;
        }
        of_gate.store(row, dg);
        of_up.store(row, du);
      });
    };
    if (whole > 0) run(0, whole / width, width);
    if (whole < n) run(whole, 1, n - whole);
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
    Tensor dgate = g.needs(0) ? empty(x.shape(), x.options()) : Tensor();
    Tensor dup = g.needs(1) ? empty(x.shape(), x.options()) : Tensor();
    kernel::swiglu_backward(dgate, dup, dy.contiguous(), x.contiguous(), u.contiguous());
    return {dgate, dup};
  };
  return record("swiglu", {gate, up}, gated(gate, up), vjp,
                [saved_gate, saved_up] { return gated(*saved_gate, *saved_up); });
}

}  // namespace ink
