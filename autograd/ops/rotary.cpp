// Rotary positions: each pair (a, b) of a row is turned by an angle. Su et al. 2021, eq. 34.
//   ya = a cos - b sin,   yb = b cos + a sin
// The gradient is turned back: the same with -sin.
#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

namespace cpu {

void rotary(Array& y, const Array& x, const Array& cos, const Array& sin, bool interleaved,
            bool back) {
  const int64_t pairs = cos.size(-1), n = x.size(-1), last = x.dim() - 1;
  const int64_t size = size_of(x.dtype());
  const std::array<Array, 4> lines{first_of_lines(y, last), first_of_lines(x, last),
                                   first_of_lines(cos, last), first_of_lines(sin, last)};
  const StridedLoop<4> loop(lines[0].shape(), {&lines[0], &lines[1], &lines[2], &lines[3]});
  std::byte *to = writable_address_of(y), *from = address_of(x);
  for_computed("rotary", x.dtype(), [&]<class C>(C) {
    const C sign = back ? -1 : 1, *c = cos.data<C>(), *s = sin.data<C>();
    // Pair k is (x[k step], x[k step + apart]).
    const auto turn = [=](C* out, const C* in, const C* cs, const C* sn, auto step, int64_t apart) {
#pragma omp simd
      for (int64_t k = 0; k < pairs; ++k) {
        const C a = in[k * step], b = in[k * step + apart];
        out[k * step] = a * cs[k] - b * (sign * sn[k]);
        out[k * step + apart] = b * cs[k] + a * (sign * sn[k]);
      }
      if (out != in) std::copy(in + 2 * pairs, in + n, out + 2 * pairs);
    };
    const bool converts = x.dtype() != dtype_of<C>();  // a line at a time
    const detail::Convert widen = detail::conversion(dtype_of<C>(), x.dtype()),
                          narrow = detail::conversion(x.dtype(), dtype_of<C>());
    loop.for_each_row(
        [=, &loop](std::array<int64_t, 4> at, int64_t count) {
          const std::unique_ptr<C[]> line(converts ? new C[static_cast<size_t>(n)] : nullptr);
          for (int64_t i = 0; i < count; ++i) {
            if (converts) widen(line.get(), from + at[1] * size, n);
            C* out = converts ? line.get() : reinterpret_cast<C*>(to + at[0] * size);
            const C* in = converts ? line.get() : reinterpret_cast<C*>(from + at[1] * size);
            if (interleaved)
              turn(out, in, c + at[2], s + at[3], std::integral_constant<int, 2>(), 1);
            else
              turn(out, in, c + at[2], s + at[3], std::integral_constant<int, 1>(), pairs);
            if (converts) narrow(to + at[0] * size, out, n);
            for (size_t k = 0; k < 4; ++k) at[k] += loop.inner_stride(k);
          }
        },
        std::max<int64_t>(1, kGrain / n));
  });
}

}  // namespace cpu

static Tensor rotary_composed(const Tensor& x, const Tensor& cos, const Tensor& sin,
                              bool interleaved) {
  const int64_t pairs = cos.size(-1), step = interleaved ? 2 : 1, apart = interleaved ? 1 : pairs;
  const Tensor wide = x.to(cos.dtype());
  const Tensor a = slice(wide, -1, 0, step * pairs, step);
  const Tensor b = slice(wide, -1, apart, apart + step * pairs, step);
  const Tensor ya = a * cos - b * sin, yb = b * cos + a * sin;
  const Tensor turned = interleaved ? stack({ya, yb}, -1).flatten(-2) : cat({ya, yb}, -1);
  return cat({turned, slice(wide, -1, 2 * pairs, x.size(-1))}, -1).to(x.dtype());
}

// cos and sin (..., T, pairs) have x's dimensions. The gradient is the same op, applied to dy.
static Tensor turned(const Tensor& input, const Tensor& cos, const Tensor& sin, bool interleaved,
                     bool back) {
  const Tensor x = input.strides().back() == 1 ? input : input.contiguous();
  Tensor y = empty_result(x.shape(), x.options(), {&x});
  if (y.strides().back() != 1) y = empty(x.shape(), x.options());
  kernel::rotary(y, x, cos, sin, interleaved, back);
  return record("rotary", {input}, y, [=](const Tensor& dy) -> Grads {
    return {turned(dy, cos, sin, interleaved, !back)};
  });
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  check_defined("rotary", x, cos, sin);
  INK_CHECK(x.is_floating() && x.dim() >= 2, "rotary: expected a floating x (..., T, d), got ",
            x.dtype(), " ", x.shape());
  INK_CHECK(!cos.requires_grad() && !sin.requires_grad(),
            "rotary: cos and sin get no gradient, and one of them requires it; pass its detach()");
  const int64_t pairs = cos.dim() > 0 ? cos.size(-1) : 0;
  INK_CHECK(cos.is_floating() && sin.is_floating() && cos.shape() == sin.shape() && pairs > 0 &&
                2 * pairs <= x.size(-1),
            "rotary: expected tables cos and sin (T, pairs), with at most ", x.size(-1) / 2,
            " pairs for x ", x.shape(), ", got ", cos.shape(), " and ", sin.shape());
  Shape shape = x.shape();
  shape.back() = pairs;
  bool fits = cos.dim() <= x.dim();
  for (int64_t i = 0; fits && i < cos.dim(); ++i) {
    const int64_t size = cos.size(-1 - i);
    fits = i == 0 || size == 1 || size == x.size(-1 - i);
  }
  INK_CHECK(fits, "rotary: tables ", cos.shape(), " do not fit x ", x.shape(),
            "; expected one row for each of ", x.size(-2), " positions");
  const auto table = [&](const Tensor& t) {
    const Tensor wide = t.detach().to(x.dtype() == f64 ? f64 : f32);
    return (wide.strides().back() == 1 ? wide : wide.contiguous()).expand(shape);
  };
  const Tensor c = table(cos), s = table(sin);
  return composed() ? rotary_composed(x, c, s, interleaved) : turned(x, c, s, interleaved, false);
}

}  // namespace ink
