// What layer_norm and rms_norm share.
#pragma once

#include "autograd/basic_ops.h"

namespace ink {

/// A norm's weight or bias, (C), as its kernels read it: contiguous, in the dtype they compute in
/// (f64 for f64, else f32).
inline Tensor norm_parameter(const char* op, const char* name, const Tensor& given,
                             const Tensor& x) {
  const Shape shape = {x.size(-1)};
  INK_CHECK(given.shape() == shape, op, ": expected ", name, " of shape ", shape, " for an input ",
            x.shape(), ", got ", given.shape());
  return given.to(x.dtype() == f64 ? f64 : f32).contiguous();
}
/// The weight; ones if not given.
inline Tensor norm_weight(const char* op, const Tensor& given, const Tensor& x) {
  if (given.defined()) return norm_parameter(op, "weight", given, x);
  return full({x.size(-1)}, 1, {x.dtype() == f64 ? f64 : f32, x.device()});
}

/// Memory for the gradient of a norm's input i, of the parameter's shape; undefined if nobody wants
/// it.
inline Tensor sum_for(VjpContext& g, size_t i, const Tensor& parameter) {
  return g.needs(i) ? empty_like(parameter) : Tensor();
}

}  // namespace ink
