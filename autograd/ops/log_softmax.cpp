// log_softmax over one dimension.
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/log_sums.h"
#include "autograd/ops/shared/over_dim.h"

namespace ink {

namespace cpu {

void log_softmax(Array& y, const Array& x) {
  const auto row = []<class C>(int64_t n, C* b, const C* a) {
    const C top = max_of<C>(n, [&](int64_t i) { return a[i]; });
    const auto e = [&](int64_t i) { return simd::exp_nonpositive(a[i] - top); };
    const C total = sum_of<C>(n, e),
            log_total = simd::log_of_sum(total, others_of(total, simd::kOneTerm<C>, n, e));
    for (int64_t i = 0; i < n; ++i) b[i] = a[i] - top - log_total;
  };
  map_rows("log_softmax", row, y, x);
}

void log_softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class C>(int64_t n, C* d, const C* g, const C* a) {
    const C total = sum_of<C>(n, [&](int64_t i) { return g[i]; });
    for (int64_t i = 0; i < n; ++i) d[i] = g[i] - simd::exp_nonpositive(a[i]) * total;
  };
  map_rows("log_softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

static Tensor log_softmax_by_lines(const Tensor& x, int64_t d) {
  Tensor y = empty_like(x);
  for_computed("log_softmax", x.dtype(), [&]<class C>(C) {
    for_lines(x, d,
              [from = x.data<C>(), to = y.mutable_data<C>()](
                  int64_t, int64_t at, int64_t lines, int64_t n, int64_t next, int64_t step) {
                const LogSums<C> sums(from + at, lines, n, next, step);
                for (int64_t i = 0; i < n; ++i) {
                  const C* a = from + at + i * next;
                  C* b = to + at + i * next;
#pragma omp simd
                  for (int64_t c = 0; c < lines; ++c)
                    b[c * step] = a[c * step] - sums.top[c] - sums.log[c];
                }
              });
  });
  return y;
}

static Tensor log_softmax_composed(const Tensor& x, int64_t d) {
  const Tensor shifted = x - amax(x.detach(), {d}, true);  // y does not depend on the shift
  return shifted - log(sum(exp(shifted), {d}, true));
}

static Tensor log_softmax_gradient(const Tensor& dy, const Tensor& y, int64_t d) {
  return dy - exp(y) * sum(dy, {d}, true);
}

Tensor log_softmax(const Tensor& x, NumberOf<int64_t> dim) {
  const OverDim op{"log_softmax",       log_softmax_composed,         log_softmax_gradient,
                   kernel::log_softmax, kernel::log_softmax_backward, 32,
                   log_softmax_by_lines};
  return over_dim(op, x, dim);
}

}  // namespace ink
