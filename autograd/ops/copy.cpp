// Fills and copies: fill, copy (with conversion), contiguous, clone, to.
#include <cstring>

#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/strided_loop.h"

namespace ink {

namespace cpu {

void fill(Tensor& y, double value) {
  const StridedLoop<1> loop(y.shape(), {&y});
  for_any(y.dtype(), [&]<class T>(T) {
    T* out = y.mutable_data<T>();
    const T v = static_cast<T>(value);
    const int64_t stride = loop.inner_stride(0);
    loop.for_each_row([&](auto offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) out[offset[0] + i * stride] = v;
    });
  });
}

template <class To, class From>
void copy_rows(To* y, const From* x, const StridedLoop<2>& loop) {
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  loop.for_each_row([&](auto offset, int64_t n) {
    To* to = y + offset[0];
    const From* from = x + offset[1];
    if (sy == 1 && sx == 1) {
      if constexpr (std::is_same_v<To, From>) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * sy] = static_cast<To>(from[i * sx]);
    }
  });
}

void copy(Tensor& y, const Tensor& x) {
  const StridedLoop<2> loop(y.shape(), {&y, &x});
  for_any(x.dtype(), [&]<class From>(From) {
    for_any(y.dtype(),
            [&]<class To>(To) { copy_rows(y.mutable_data<To>(), x.data<From>(), loop); });
  });
}

}  // namespace cpu

// y = x with its elements in row-major order.   dx = dy
Tensor clone(const Tensor& x) {
  Tensor y = empty_like(x);
  kernel::copy(y, x);
  return record("clone", {x}, y, [](const Tensor& dy) -> Grads { return {dy}; });
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : clone(x); }

// y = x rounded to another dtype.   dx = dy in x's dtype
Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), {dtype, x.device()});
  kernel::copy(y, x);
  return record("to", {x}, y,
                [from = x.dtype()](const Tensor& dy) -> Grads { return {to(dy, from)}; });
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  detail::fail("to: this build of inkling cannot move a tensor from ", x.device(), " to ", device);
}

}  // namespace ink
