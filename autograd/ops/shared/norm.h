// What layer_norm and rms_norm share.
#pragma once

#include "autograd/basic_ops.h"

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

/// The sum to which a norm's backward adds the gradient of its input i, of shape (C): the sum so
/// far, or zeros; undefined if nobody wants it.
inline Tensor sum_for(VjpContext& g, size_t i, const Tensor& parameter) {
  if (!g.needs(i)) return {};
  const Tensor existing = g.sum_so_far(i);
  return existing.defined() ? existing : zeros_like(parameter);
}

}  // namespace ink
