// cumsum, cumprod: running sums and products along one dimension.
#include <algorithm>
#include <type_traits>

#include "autograd/kernels/copy.h"
#include "autograd/kernels/lines.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/folds.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"

namespace ink {

namespace cpu {

// The running sums (F = Sum) or products of `width` lines that begin `line_y` and `line_x` apart.
template <class F, class T, class Width>
static void scan_lines(T* y, const T* x, Width width, int64_t line_y, int64_t line_x, int64_t count,
                       int64_t next_y, int64_t next_x) {
  using Far = typename F::Far;
  Far sums[width()];
  std::fill_n(sums, width(), F::none());
  for (int64_t i = 0; i < count; ++i, x += next_x, y += next_y) {
#pragma omp simd
    for (int64_t k = 0; k < width; ++k) {
      sums[k] = F::join(sums[k], static_cast<Far>(x[k * line_x]));
      y[k * line_y] = static_cast<T>(sums[k]);
    }
  }
}

template <class F, class T>
static void scan_by(Array& y, const Array& x, int64_t dim) {
  const Array y0 = first_of_lines(y, dim), x0 = first_of_lines(x, dim);
  const StridedLoop<2> loop(y0.shape(), {&y0, &x0});
  const int64_t count = x.shape()[dim], next_y = y.strides()[dim], next_x = x.strides()[dim];
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  const T* in = x.data<T>();
  T* out = y.mutable_data<T>();
  const auto lines = [&](auto offset, int64_t n) {
    const T* from = in + offset[1];
    T* to = out + offset[0];
    // Several lines at once, because the additions of one line depend on each other.
    const auto while_enough = [&](auto width, auto step_y, auto step_x) {
      for (; n >= width; n -= width, from += width * sx, to += width * sy)
        scan_lines<F>(to, from, width, step_y, step_x, count, next_y, next_x);
    };
    const std::integral_constant<int64_t, 64> many;
    const std::integral_constant<int64_t, 4> few;
    const std::integral_constant<int64_t, 1> one;
    if (sx == 1 && sy == 1) while_enough(many, one, one);
    while_enough(few, sy, sx);
    while_enough(one, sy, sx);
  };
  loop.for_each_row(lines, kGrain / count);
}

void scan(Array& y, const Array& x, int64_t dim, bool product) {
  if (x.numel() == 0) return;
  const auto scan_as = [&]<class T>(T) {
    product ? scan_by<Prod<T>, T>(y, x, dim) : scan_by<Sum<T>, T>(y, x, dim);
  };
  if (x.dtype() == i64) return scan_as(int64_t{});
  if (x.dtype() != bf16) return for_computed("cumsum", x.dtype(), scan_as);
  Array wide = copied(x, f32);
  scan(wide, wide, dim, product);
  copy(y, wide);
}

}  // namespace cpu

// y_i = x_0 + ... + x_i.   dx_i = dy_i + ... + dy_(n-1)
Tensor cumsum(const Tensor& x, int64_t dim) {
  check_defined("cumsum", x);
  const int64_t d = wrap_dim("cumsum", dim, x.shape());
  if (x.dim() == 0) return shown_as("cumsum", reshape(cumsum(reshape(x, {1}), 0), {}));
  if (x.dtype() == boolean) return cumsum(to(x, i64), d);
  Tensor y = empty_like(x);
  kernel::scan(y, x, d, false);
  return record("cumsum", {x}, y,
                [d](const Tensor& dy) -> Grads { return {flip(cumsum(flip(dy, {d}), d), {d})}; });
}

// Without a division:  dx_i = x_0 ... x_(i-1) s_i,  s_i = dy_i + x_(i+1) s_(i+1)
// After step k = 1, 2, 4, ... s_i has the terms of dy_i ... dy_(i+2k-1).
static Tensor cumprod_gradient(const Tensor& x, const Tensor& dy, int64_t d) {
  const int64_t n = x.shape()[d];
  Tensor s = dy, m = narrow(x, d, 1, n - 1);  // m_i = x_(i+1) ... x_(i+k)
  for (int64_t k = 1; k < n; k *= 2) {
    const Tensor sums = narrow(s, d, 0, n - k) + m * narrow(s, d, k, n - k);
    s = cat({sums, narrow(s, d, n - k, k)}, d);
    if (const int64_t left = n - 2 * k; left > 0) m = narrow(m, d, 0, left) * narrow(m, d, k, left);
  }
  const Tensor first = ones_like(narrow(x, d, 0, 1));
  return cat({first, narrow(cumprod(x, d), d, 0, n - 1)}, d) * s;
}

// y_i = x_0 ... x_i.   dx_i = (dy_i y_i + ... + dy_(n-1) y_(n-1)) / x_i where no x is 0 and n > 1
// (A GPU's x is not looked at, because the host would have to wait for the answer.)
Tensor cumprod(const Tensor& x, int64_t dim) {
  check_defined("cumprod", x);
  const int64_t d = wrap_dim("cumprod", dim, x.shape());
  if (x.dim() == 0) return shown_as("cumprod", reshape(cumprod(reshape(x, {1}), 0), {}));
  if (x.dtype() == boolean) return cumprod(to(x, i64), d);
  Tensor y = empty_like(x);
  kernel::scan(y, x, d, true);
  const auto vjp = [d, x = Saved::input(x), y = Saved::output(y)](const Tensor& dy) -> Grads {
    const bool divides =
        dy.numel() == 0 || (dy.size(d) > 1 && dy.device().is_cpu() && all(*x != 0).item<bool>());
    if (!divides) return {cumprod_gradient(*x, dy, d)};
    return {flip(cumsum(flip(dy * *y, {d}), d), {d}) / *x};
  };
  return record("cumprod", {x}, y, vjp);
}

}  // namespace ink
