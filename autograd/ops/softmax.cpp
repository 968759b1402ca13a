// softmax over one dimension.                             (the op to copy when you add a fused one)
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/over_dim.h"

namespace ink {

namespace cpu {

void softmax(Array& y, const Array& x) {
  const auto row = []<class C>(int64_t n, C* b, const C* a) {
    const C top = max_of<C>(n, [&](int64_t i) { return a[i]; });
    for (int64_t i = 0; i < n; ++i) b[i] = simd::exp_nonpositive(a[i] - top);
    const C scale = 1 / sum_of<C>(n, [&](int64_t i) { return b[i]; });
    for (int64_t i = 0; i < n; ++i) b[i] *= scale;
  };
  map_rows("softmax", row, y, x);
}

void softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class C>(int64_t n, C* d, const C* g, const C* a) {
    const C dot = sum_of<C>(n, [&](int64_t i) { return g[i] * a[i]; });
    for (int64_t i = 0; i < n; ++i) d[i] = a[i] * (g[i] - dot);
  };
  map_rows("softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

static Tensor softmax_composed(const Tensor& x, int64_t d) {
  const Tensor e = exp(x - amax(x.detach(), {d}, true));  // y does not depend on the shift
  return e / sum(e, {d}, true);
}

static Tensor softmax_gradient(const Tensor& dy, const Tensor& y, int64_t d) {
  return y * (dy - sum(dy * y, {d}, true));
}

Tensor softmax(const Tensor& x, NumberOf<int64_t> dim) {
  const OverDim op{"softmax", softmax_composed, softmax_gradient, kernel::softmax,
                   kernel::softmax_backward};
  return over_dim(op, x, dim);
}

}  // namespace ink
