// PyTorch's rules for the dtype of a result.
#pragma once

#include <utility>

#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"

namespace ink {

/// The dtype of an op on two dtypes: the higher of bool < i64 < bf16 < f32 < f64.
inline DType promote(DType a, DType b) {
  for (DType dtype : {f64, f32, bf16, i64}) {
    if (a == dtype || b == dtype) return dtype;
  }
  return boolean;
}

/// The same for tensors. Among tensors of one kind (bool, integers, floating), those with
/// dimensions decide, and scalars do not count.
template <class... Tensors>
DType promote(const Tensor& a, const Tensor& b, const Tensors&... others) {
  DType of_arrays = boolean, of_scalars = boolean;
  for (const Tensor* x : {&a, &b, &others...}) {
    DType& meet = x->dim() > 0 ? of_arrays : of_scalars;
    meet = promote(meet, x->dtype());
  }
  return is_floating(of_arrays) ? of_arrays : promote(of_arrays, of_scalars);
}

/// The dtype of a tensor combined with a number: the tensor's, except that a floating number turns
/// i64 and bool into the default floating dtype, and an integer turns bool into i64.
inline DType promote(const Tensor& x, const Scalar& number) {
  if (x.is_floating()) return x.dtype();
  return is_floating(number.dtype) ? context().default_dtype : promote(x.dtype(), number.dtype);
}

/// Must a number beside x become a tensor first? Kernels take it as a double, which cannot hold
/// every i64. x has the dtype of the result.
inline bool needs_tensor(const Tensor& x, const Scalar& number) {
  return x.dtype() == i64 && !number.exact();
}

/// The number with which `x op number` computes. As in PyTorch, it is rounded to bf16 for a bf16
/// tensor, unless it multiplies or divides.
inline double number_beside(DType x, const Scalar& number, BinaryOp op) {
  const bool is_factor = op == BinaryOp::mul || op == BinaryOp::div || op == BinaryOp::rdiv;
  if (x != bf16 || is_factor) return number.value;
  return static_cast<float>(bfloat16(static_cast<float>(number.value)));
}

/// `dtype`, or the default floating dtype in place of integers and bools.
inline DType floating(DType dtype) { return is_floating(dtype) ? dtype : context().default_dtype; }

// Ops that promote begin with one of these; `op` is for the error about an undefined argument.

/// x, in the default floating dtype if it holds integers or bools.
inline Tensor floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  return to(x, floating(x.dtype()));
}

/// x in the dtype of an op on it and a number.
inline Tensor promoted(const char* op, const Tensor& x, const Scalar& number) {
  check_defined(op, x);
  return to(x, promote(x, number));
}

/// Both in the dtype of an op on them.
inline std::pair<Tensor, Tensor> promoted(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, a, b);
  const DType dtype = promote(a, b);
  return {to(a, dtype), to(b, dtype)};
}

/// y, converted for a product or quotient whose result has the dtype `meet`. A scalar that
/// multiplies or divides a bf16 tensor keeps its digits, as a number does, and as in PyTorch on a
/// CPU.
inline Tensor factor(const Tensor& y, DType meet) {
  const bool keeps = meet == bf16 && (y.dtype() == f32 || y.dtype() == f64);
  return to(y, keeps ? f32 : meet);
}

/// Refuses a difference of bools.
inline void check_sub(const char* op, DType a, DType b) {
  INK_CHECK(a != boolean && b != boolean, op,
            ": bool tensors cannot be subtracted; use logical_xor, or convert with to(i64)");
}

/// Refuses a floating alpha for integers and bools, and a bool for numbers.
inline void check_alpha(const char* op, DType dtype, const Scalar& alpha) {
  const bool fits =
      is_floating(alpha.dtype) ? is_floating(dtype) : alpha.dtype != boolean || dtype == boolean;
  INK_CHECK(fits, op, ": expected ", is_floating(dtype) ? "a number" : "an integer",
            " as alpha for ", dtype, ", got ", alpha);
}
/// b alpha, for the sum a + b alpha in a dtype that a and b share. It is f32 beside bf16, so that
/// the sum is rounded once.
inline Tensor scaled(const char* op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  check_defined(op, a, b);
  const DType dtype = promote(a, b);
  check_alpha(op, dtype, alpha);
  if (alpha.value == 1) return b;
  if (dtype == boolean) return to(to(b, i64) * alpha, boolean);
  return to(b, dtype == bf16 ? f32 : dtype) * alpha;
}
/// The same for a number.
inline Scalar scaled(const char* op, const Tensor& a, const Scalar& b, const Scalar& alpha) {
  check_defined(op, a);
  const DType dtype = promote(a, b);
  check_alpha(op, dtype, alpha);
  if (alpha.value == 1) return b;
  if (b.dtype == f64 || alpha.dtype == f64) return b.value * alpha.value;
  const Scalar product(b.integer * alpha.integer);
  return dtype == boolean ? Scalar(product.integer != 0) : product;
}

/// Refuses a remainder of bools, and one of integers by 0.
template <class TensorOrScalar>
void check_remainder(const Tensor& a, const TensorOrScalar& b) {
  const DType dtype = promote(a, b);
  INK_CHECK(dtype != boolean, "remainder: expected numbers, got bool");
  if (dtype != i64 || a.numel() == 0) return;
  bool by_zero;
  if constexpr (std::is_same_v<TensorOrScalar, Scalar>) {
    by_zero = b.integer == 0;
  } else {
    by_zero = any(b == 0).template item<bool>();
  }
  INK_CHECK(!by_zero, "remainder: integer division by zero");
}

/// Checks that the mask is bool, and that x's dtype can hold the value.
inline void check_masked_fill(const char* op, const Tensor& x, const Tensor& mask,
                              const Scalar& value) {
  check_defined(op, x, mask);
  INK_CHECK(mask.dtype() == boolean, op, ": expected a bool mask, got ", mask.dtype());
  check_in_range(op, value, x.dtype());
}

}  // namespace ink
