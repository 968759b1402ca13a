// What every op over one dimension has around its kernel for the last one.
#pragma once

#include "autograd/basic_ops.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

/// op(x) over dimension `dim`: rows(x), by a kernel, where that is the last dimension and rows are
/// long enough for it; else definition(x, d), whose basic ops compute all lines side by side, bf16
/// in f32. Throws "op: ..." unless x is floating.
template <class Definition, class Rows>
Tensor over_dim(const char* op, const Tensor& x, int64_t dim, const Definition& definition,
                const Rows& rows) {
  constexpr int64_t kLongEnough = 32;
  check_defined(op, x);
  const int64_t d = wrap_dim(op, dim, x.shape());
  INK_CHECK(x.is_floating(), op, ": expected a floating dtype, got ", x.dtype());
  if (x.dim() == 0) return view(over_dim(op, view(x, {1}), 0, definition, rows), {});
  const bool last = d == x.dim() - 1;
  if (last && !composed() && (x.size(d) >= kLongEnough || !x.device().is_cpu())) return rows(x);
  if (x.numel() == 0) return clone(x);  // amax needs an element
  const DType sums = x.dtype() == bf16 ? f32 : x.dtype();
  return shown_as(op, to(definition(to(x, sums), d), x.dtype()));
}

}  // namespace ink
