#include "autograd/ops/shared/over_dim.h"

#include "autograd/basic_ops.h"

namespace ink {

Tensor over_dim(const OverDim& op, const Tensor& x, int64_t dim) {
  check_defined(op.name, x);
  const int64_t d = wrap_dim(op.name, dim, x.shape());
  const DType dtype = x.dtype(), sums = dtype == bf16 ? f32 : dtype;
  INK_CHECK(x.is_floating(), op.name, ": expected a floating dtype, got ", dtype);
  if (x.dim() == 0) return shown_as(op.name, view(over_dim(op, view(x, {1}), 0), {}));
  if (composed())
    return x.numel() == 0 ? x : op.definition(x, d);  // the definition needs an element
  const bool short_rows = x.size(d) < op.shortest_row && x.device().is_cpu();
  const bool by_kernel = d == x.dim() - 1 && !short_rows;
  Tensor y;
  if (by_kernel || x.numel() == 0) {
    y = empty(x.shape(), x.options());
    op.kernel(y, contiguous(x));
  } else {
    const NoGrad no_grad;
    const bool by_lines = op.lines != nullptr && x.device().is_cpu();
    const Tensor wide = to(x, sums);
    y = contiguous(to(by_lines ? op.lines(contiguous(wide), d) : op.definition(wide, d), dtype));
  }
  return record(op.name, {x}, y, [=, y = Saved::output(y)](const Tensor& dy) -> Grads {
    if (grad_enabled() || !by_kernel)  // grad_enabled: to be differentiated
      return {to(op.gradient(to(dy, sums), to(*y, sums), d), dtype)};
    Tensor dx = empty_like(dy);
    op.backward_kernel(dx, contiguous(dy), *y);
    return {dx};
  });
}

}  // namespace ink
