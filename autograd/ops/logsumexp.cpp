// logsumexp over dimensions.
//   y  = log sum exp x
//   dx = dy exp(x - y), where y may not be rounded to bf16 before
// y is computed as m + log sum exp(x - m) with m = max x, so that nothing overflows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/log_sums.h"
#include "autograd/ops/shared/promote.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {
namespace {

// Shorter rows take less time side by side, and so do as many lines over another dimension.
constexpr int64_t kShortLine = 32;

// Of one row, of elements at(i), i < n.
template <class C, class At>
C logsumexp_row(int64_t n, const At& at) {
  constexpr C kMax = std::numeric_limits<C>::max();  // inf - inf would be NaN
  const C m = std::clamp(max_of<C>(n, at), -kMax, kMax);
  const auto e = [=](int64_t i) { return simd::exp(at(i) - m); };
  const C total = sum_of<C>(n, e), others = others_of(total, simd::kOneTerm<C>, n, e);
  // At least 1, the largest's term; but 0 if there is none above -inf.
  return m + (total < 1 ? std::log(total) : simd::log_of_sum(total, others));
}

// y[i] = that of row i of x (rows, n).
void logsumexp_rows(Array& y, const Array& x) {
  for_computed("logsumexp", x.dtype(), [&]<class C>(C) {
    const int64_t n = x.size(-1);
    const RowsIn<C> in(x);
    C* out = y.mutable_data<C>();
    for_each_row<C>(y.numel(), n, n, [=](int64_t row, C* buffer) {
      out[row] = logsumexp_row<C>(n, [p = in.row(row, buffer)](int64_t i) { return p[i]; });
    });
  });
}

// y = that over dimension d of a contiguous x, which is f32 or f64.
void logsumexp_lines(Tensor& y, const Tensor& x, int64_t d) {
  for_computed("logsumexp", x.dtype(), [&]<class C>(C) {
    for_lines(x, d,
              [from = x.data<C>(), to = y.mutable_data<C>()](
                  int64_t line, int64_t at, int64_t lines, int64_t n, int64_t next, int64_t step) {
                const LogSums<C> sums(from + at, lines, n, next, step);
                for (int64_t c = 0; c < lines; ++c) {
                  const auto element = [=, x = from + at + c * step](int64_t i) {
                    return x[i * next];
                  };
                  to[line + c] = std::isfinite(sums.top[c]) ? sums.top[c] + sums.log[c]
                                                            : logsumexp_row<C>(n, element);
                }
              });
  });
}

Tensor logsumexp_composed(const Tensor& x, const ReducedShape& shape) {
  const NoGrad no_grad;
  if (x.numel() == 0) return full(shape.kept, -INFINITY, x.options());  // log 0
  const Tensor top = amax(x, shape.dims, true);
  const Tensor m = masked_fill(top, abs(top) == INFINITY, 0);
  return m + log(sum(exp(x - m), shape.dims, true));
}

}  // namespace

Tensor logsumexp(const Tensor& input, const Shape& dims, Flag keepdim) {
  const Tensor x = floating("logsumexp", input);
  const ReducedShape shape("logsumexp", x, dims);
  Tensor y;
  if (x.device().is_cpu() && !composed()) {
    const NoGrad no_grad;
    y = empty(shape.kept, {x.dtype() == bf16 ? f32 : x.dtype(), x.device()});
    const int64_t d = shape.dims.size() == 1 ? shape.dims[0] : x.dim();
    if (d < x.dim() - 1 && x.is_contiguous() && x.strides()[d] >= kShortLine && x.numel() > 0) {
      logsumexp_lines(y, to(x, y.dtype()), d);
    } else {
      const Tensor rows = permute(x, shape.reduced_last()).reshape({y.numel(), shape.count});
      if (shape.count < kShortLine && x.numel() > 0) {
        logsumexp_lines(y, to(rows, y.dtype()).contiguous(), 1);
      } else {
        logsumexp_rows(y, rows.contiguous());
      }
    }
    y = to(y, x.dtype());
  } else {
    y = logsumexp_composed(x, shape);
  }
  y = shape.finish(y, keepdim);
  return record("logsumexp", {x}, y,
                [shape, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
                  if (dy.dtype() != bf16) return {shape.keep(dy) * exp(*x - shape.keep(*y))};
                  const Tensor v = to(*x, f32);
                  return {to(shape.keep(dy) * exp(v - logsumexp(v, shape.dims, true)), bf16)};
                });
}

}  // namespace ink
