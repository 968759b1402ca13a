// softmax over one dimension.                                                      (the op to copy
// when you add one)
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include "autograd/kernels.h"
#include "autograd/ops.h"

namespace ink {

namespace cpu {

void softmax(Tensor& y, const Tensor& x) {
  const int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
  for_float("softmax", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    parallel_for(rows, kGrain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* a = in + row * n;
        T* b = out + row * n;
        C top = -std::numeric_limits<C>::infinity(), total = 0;
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < n; ++i) top = std::max(top, static_cast<C>(a[i]));
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < n; ++i) {
          const C e = simd::exp(static_cast<C>(a[i]) - top);
          b[i] = static_cast<T>(e);
          total += e;
        }
        for (int64_t i = 0; i < n; ++i) b[i] = static_cast<T>(static_cast<C>(b[i]) / total);
      }
    });
  });
}

void softmax_backward(Tensor& dx, const Tensor& dy, const Tensor& y) {
  const int64_t n = y.size(-1), rows = n ? y.numel() / n : 0;
  for_float("softmax_backward", y.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const T *g = dy.data<T>(), *out = y.data<T>();
    T* d = dx.mutable_data<T>();
    parallel_for(rows, kGrain / std::max<int64_t>(n, 1), [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * n; at < end * n; at += n) {
        C dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; ++i)
          dot += static_cast<C>(g[at + i]) * static_cast<C>(out[at + i]);
        for (int64_t i = 0; i < n; ++i)
          d[at + i] =
              static_cast<T>(static_cast<C>(out[at + i]) * (static_cast<C>(g[at + i]) - dot));
      }
    });
  });
}

}  // namespace cpu

static Tensor softmax_composed(const Tensor& x) {
  const Tensor e = exp(x - amax(x, {-1}, true));
  return e / sum(e, {-1}, true);
}

Tensor softmax(const Tensor& input, int64_t dim) {
  INK_CHECK(input.dim() >= 1, "softmax: needs at least one dimension, got a scalar");
  const int64_t d = wrap_dim("softmax", dim, input.shape());
  if (d != input.dim() - 1) return softmax(input.transpose(d, -1)).transpose(d, -1);
  if (composed()) return softmax_composed(input);
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x);
  kernel::softmax(y, x);
  return record_fused("softmax", {x}, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
    Tensor dx = empty_like(dy);
    kernel::softmax_backward(dx, dy.contiguous(), *y);
    return {dx};
  });
}

}  // namespace ink
