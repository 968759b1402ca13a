// PyTorch's rules for the dtype of a result.
#pragma once

#include <cmath>
#include <utility>

#include "autograd/basic_ops.h"

namespace ink {

/// The dtype in which two meet, one of both: the higher of bool < i64 < bf16 < f32 < f64.
inline DType promote(DType a, DType b) {
  for (DType dtype : {f64, f32, bf16, i64}) {
    if (a == dtype || b == dtype) return dtype;
  }
  return boolean;
}

/// The same for two tensors; of two floating ones, a scalar yields to one that has dimensions.
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

// What an op that promotes begins with; `op` is for an undefined argument.

/// x, in the default floating dtype if it holds integers or bools.
inline Tensor floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  return x.is_floating() ? x : to(x, context().default_dtype);
}

/// x in the dtype in which it meets a number.
inline Tensor promoted(const char* op, const Tensor& x, double number) {
  check_defined(op, x);
  return to(x, promote(x, number));
}

/// Both, in the dtype in which they meet.
inline std::pair<Tensor, Tensor> promoted(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, a, b);
  const DType dtype = promote(a, b);
  return {to(a, dtype), to(b, dtype)};
}

/// A mask is bool, and the value must be one of x's dtype.
inline void check_masked_fill(const char* op, const Tensor& x, const Tensor& mask, double value) {
  check_defined(op, x, mask);
  INK_CHECK(mask.dtype() == boolean, op, ": expected a bool mask, got ", mask.dtype());
  INK_CHECK(x.is_floating() || promote(x, value) == i64, op, ": expected a value of ", x.dtype(),
            ", got ", value);
}

}  // namespace ink
