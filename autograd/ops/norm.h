// What layer_norm and rms_norm share.
#pragma once

#include "autograd/ops.h"

namespace ink {

/// A norm's weight or bias, (C), as its kernels read it: contiguous, in the dtype they compute in
/// (f64 for f64, else f32), and filled with `otherwise` if not given.
inline Tensor norm_parameter(const char* op, const char* name, const Tensor& given, const Tensor& x,
                             double otherwise) {
  const Shape shape = {x.size(-1)};
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  if (!given.defined()) return full(shape, otherwise, {dtype, x.device()});
  INK_CHECK(given.shape() == shape, op, ": expected ", name, " of shape ", shape, " for an input ",
            x.shape(), ", got ", given.shape());
  return given.to(dtype).contiguous();
}

/// Calls f(X{}, Y{}) with the C++ types of a norm's input and output: of one dtype, or, under
/// Autocast, f32 and bf16.
template <class F>
void for_norm(const char* op, const Tensor& x, const Tensor& y, F&& f) {
  if (x.dtype() == f32 && y.dtype() == bf16) return f(float{}, bfloat16{});
  for_float(op, x.dtype(), [&]<class T>(T) { f(T{}, T{}); });
}

/// Where the gradient of a norm's input i, of shape (C), is summed: the one that exists, or zeros;
/// undefined if nobody wants it.
inline Tensor sum_for(VjpContext& g, size_t i, const Tensor& parameter) {
  if (!g.needs(i)) return {};
  const Tensor existing = g.into(i);
  return existing.defined() ? existing : zeros_like(parameter);
}

/// sum += part, where someone wants the sum.
template <class C>
void add_part(Tensor& sum, const C* part) {
  if (!sum.defined()) return;
  C* to = sum.mutable_data<C>();
  for (int64_t i = 0; i < sum.numel(); ++i) to[i] += part[i];
}

}  // namespace ink
