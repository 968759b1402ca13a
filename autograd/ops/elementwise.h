// What elementwise ops share: loops that apply a function to every element of tensors of any
// layout, and PyTorch's rules for the dtype of a result.
#pragma once

#include <cmath>

#include "autograd/ops.h"
#include "autograd/ops/strided_loop.h"

namespace ink {

// ---- loops
// -------------------------------------------------------------------------------------------------------

// In each: y and the inputs have one shape, and y may be one of the inputs (the same elements in
// the same places), so that no element depends on another; `omp simd` says so. A contiguous run,
// and one beside a repeated element (stride 0: a broadcast), become vector code.

/// y = f(x), element by element.
template <class To, class From, class F>
void map(Tensor& y, const Tensor& x, F f) {
  const StridedLoop<2> loop(y.shape(), {&y, &x});
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  const From* in = x.data<From>();
  To* out = y.mutable_data<To>();
  loop.for_each_row([=](auto offset, int64_t n) {
    To* to = out + offset[0];
    const From* from = in + offset[1];
    if (sy == 1 && sx == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = f(from[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * sy] = f(from[i * sx]);
    }
  });
}

/// y = f(a, b), element by element.
template <class To, class A, class B, class F>
void map(Tensor& y, const Tensor& a, const Tensor& b, F f) {
  const StridedLoop<3> loop(y.shape(), {&y, &a, &b});
  const int64_t sy = loop.inner_stride(0), sa = loop.inner_stride(1), sb = loop.inner_stride(2);
  const A* left = a.data<A>();
  const B* right = b.data<B>();
  To* out = y.mutable_data<To>();
  loop.for_each_row([=](auto offset, int64_t n) {
    To* to = out + offset[0];
    const A* p = left + offset[1];
    const B* q = right + offset[2];
    if (sy == 1 && sa == 1 && sb == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], q[i]);
    } else if (sy == 1 && sa == 1 && sb == 0) {
      const B one = *q;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], one);
    } else if (sy == 1 && sa == 0 && sb == 1) {
      const A one = *p;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = f(one, q[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * sy] = f(p[i * sa], q[i * sb]);
    }
  });
}

/// y = condition ? a : b, element by element.
template <class T>
void map_where(Tensor& y, const Tensor& condition, const Tensor& a, const Tensor& b) {
  const StridedLoop<4> loop(y.shape(), {&y, &condition, &a, &b});
  const int64_t sy = loop.inner_stride(0), sc = loop.inner_stride(1);
  const int64_t sa = loop.inner_stride(2), sb = loop.inner_stride(3);
  const bool* which = condition.data<bool>();
  const T *left = a.data<T>(), *right = b.data<T>();
  T* out = y.mutable_data<T>();
  loop.for_each_row([=](auto offset, int64_t n) {
    T* to = out + offset[0];
    const bool* c = which + offset[1];
    const T *p = left + offset[2], *q = right + offset[3];
    if (sy == 1 && sc == 1 && sa == 1 && sb == 1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = c[i] ? p[i] : q[i];
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * sy] = c[i * sc] ? p[i * sa] : q[i * sb];
    }
  });
}

// ---- dtypes
// ------------------------------------------------------------------------------------------------------

/// The dtype in which two meet, one of both: the higher of bool < i64 < bf16 < f32 < f64.
inline DType promote(DType a, DType b) {
  for (DType dtype : {f64, f32, bf16, i64}) {
    if (a == dtype || b == dtype) return dtype;
  }
  return boolean;
}

/// The same for two tensors; of two floating ones, one of no dimensions yields to one that has
/// some.
inline DType promote(const Tensor& a, const Tensor& b) {
  if (a.is_floating() && b.is_floating() && (a.dim() == 0) != (b.dim() == 0))
    return a.dim() == 0 ? b.dtype() : a.dtype();
  return promote(a.dtype(), b.dtype());
}

/// The dtype of a tensor combined with a number: the tensor's, but a fractional number turns i64
/// and bool into the default floating dtype, and a whole one turns bool into i64.
inline DType promote(const Tensor& x, double number) {
  if (x.is_floating()) return x.dtype();
  return std::isfinite(number) && number == std::trunc(number) ? i64 : context().default_dtype;
}

/// x, in the default floating dtype if it holds integers or bools.
inline Tensor floating(const Tensor& x) {
  return x.is_floating() ? x : to(x, context().default_dtype);
}

}  // namespace ink
