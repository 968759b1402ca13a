// softmax over one dimension.                             (the op to copy when you add a fused one)
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/over_dim.h"

namespace ink {

namespace cpu {

void softmax(Array& y, const Array& x) {
  const auto row = []<class T>(int64_t n, T* b, const T* a) {
    using C = compute_t<T>;
    const C top = max_of<C>(n, [&](int64_t i) { return static_cast<C>(a[i]); });
    const auto e = [&](int64_t i) { return simd::exp_nonpositive(static_cast<C>(a[i]) - top); };
    if constexpr (std::is_same_v<T, C>) {
      for (int64_t i = 0; i < n; ++i) b[i] = e(i);
      const C scale = 1 / sum_of<C>(n, [&](int64_t i) { return b[i]; });
      for (int64_t i = 0; i < n; ++i) b[i] *= scale;
    } else {  // b would round e
      const C scale = 1 / sum_of<C>(n, e);
      for (int64_t i = 0; i < n; ++i) b[i] = static_cast<T>(e(i) * scale);
    }
  };
  map_rows("softmax", row, y, x);
}

void softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class T>(int64_t n, T* d, const T* g, const T* a) {
    using C = compute_t<T>;
    const C dot =
        sum_of<C>(n, [&](int64_t i) { return static_cast<C>(g[i]) * static_cast<C>(a[i]); });
    for (int64_t i = 0; i < n; ++i)
      d[i] = static_cast<T>(static_cast<C>(a[i]) * (static_cast<C>(g[i]) - dot));
  };
  map_rows("softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

static Tensor softmax_composed(const Tensor& x, int64_t d) {
  const Tensor e = exp(x - amax(x.detach(), {d}, true));  // y does not depend on the shift
  return e / sum(e, {d}, true);
}

Tensor softmax(const Tensor& input, int64_t dim) {
  return over_dim("softmax", input, dim, softmax_composed, [](const Tensor& x) {
    Tensor y = empty(x.shape(), x.options());
    kernel::softmax(y, contiguous(x));
    return record("softmax", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
      if (grad_enabled()) return {*y * (dy - sum(dy * *y, {-1}, true))};  // to be differentiated
      Tensor dx = empty_like(dy);
      kernel::softmax_backward(dx, contiguous(dy), *y);
      return {dx};
    });
  });
}

}  // namespace ink
