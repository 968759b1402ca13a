// cumsum, cumprod: running sums and products along one dimension.
#include <type_traits>

#include "autograd/kernels/lines.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"

namespace ink {

namespace cpu {
namespace {

// The running sums of `width` lines that begin `line_y` and `line_x` apart.
template <class T, class Width>
void cumsum_lines(T* y, const T* x, Width width, int64_t line_y, int64_t line_x, int64_t count,
                  int64_t next_y, int64_t next_x) {
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  Sum sums[width()] = {};
  for (int64_t i = 0; i < count; ++i, x += next_x, y += next_y) {
#pragma omp simd
    for (int64_t k = 0; k < width; ++k) {
      sums[k] += static_cast<Sum>(x[k * line_x]);
      y[k * line_y] = static_cast<T>(sums[k]);
    }
  }
}

}  // namespace

void cumsum(Array& y, const Array& x, int64_t dim) {
  if (x.numel() == 0) return;
  const Array y0 = first_of_lines(y, dim), x0 = first_of_lines(x, dim);
  const StridedLoop<2> loop(y0.shape(), {&y0, &x0});
  const int64_t count = x.shape()[dim], next_y = y.strides()[dim], next_x = x.strides()[dim];
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  for_any(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    const auto lines = [&](auto offset, int64_t n) {
      const T* from = in + offset[1];
      T* to = out + offset[0];
      // Several lines at once, because the additions of one line depend on each other.
      const auto while_enough = [&](auto width, auto step_y, auto step_x) {
        for (; n >= width; n -= width, from += width * sx, to += width * sy)
          cumsum_lines(to, from, width, step_y, step_x, count, next_y, next_x);
      };
      const std::integral_constant<int64_t, 64> many;
      const std::integral_constant<int64_t, 4> few;
      const std::integral_constant<int64_t, 1> one;
      if (sx == 1 && sy == 1) while_enough(many, one, one);
      while_enough(few, sy, sx);
      while_enough(one, sy, sx);
    };
    loop.for_each_row(lines, kGrain / count);
  });
}

}  // namespace cpu

// y_i = x_0 + ... + x_i.   dx_i = dy_i + ... + dy_(n-1)
Tensor cumsum(const Tensor& x, int64_t dim) {
  check_defined("cumsum", x);
  const int64_t d = wrap_dim("cumsum", dim, x.shape());
  if (x.dim() == 0) return shown_as("cumsum", reshape(cumsum(reshape(x, {1}), 0), {}));
  if (x.dtype() == boolean) return cumsum(to(x, i64), d);
  Tensor y = empty_like(x);
  kernel::cumsum(y, x, d);
  return record("cumsum", {x}, y,
                [d](const Tensor& dy) -> Grads { return {flip(cumsum(flip(dy, {d}), d), {d})}; });
}

// In steps s = 1, 2, 4, ...: after step s, y_i = x_(i - 2s + 1) ... x_i.
Tensor cumprod(const Tensor& x, int64_t dim) {
  check_defined("cumprod", x);
  const int64_t d = wrap_dim("cumprod", dim, x.shape());
  if (x.dim() == 0) return shown_as("cumprod", clone(x));
  Tensor y = x.dtype() == boolean ? to(x, i64) : clone(x);
  const int64_t n = x.shape()[d];
  for (int64_t s = 1; s < n; s *= 2)
    y = cat({narrow(y, d, 0, s), narrow(y, d, s, n - s) * narrow(y, d, 0, n - s)}, d);
  return shown_as("cumprod", y);
}

}  // namespace ink
