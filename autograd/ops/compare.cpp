// Comparisons and logical ops: bool tensors, without gradients.
#include <limits>

#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/map.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace cpu {

// F(a, b), both of dtype T or, for logical ops, seen as bools.
template <class F, class T>
static void compare_as(Array& y, const Array& a, const Array& b) {
  map(
      y, [](T p, T q) { return F::f(p, q); }, a, b);
}
template <class F>
static void compare_numbers(Array& y, const Array& a, const Array& b) {
  for_any(a.dtype(), [&]<class T>(T) { compare_as<F, compute_t<T>>(y, a, b); });
}

void compare(Array& y, const Array& a, const Array& b, CompareOp op) {
  switch (op) {
    case CompareOp::eq:
      return compare_numbers<formula::eq>(y, a, b);
    case CompareOp::ne:
      return compare_numbers<formula::ne>(y, a, b);
    case CompareOp::lt:
      return compare_numbers<formula::lt>(y, a, b);
    case CompareOp::le:
      return compare_numbers<formula::le>(y, a, b);
    case CompareOp::gt:
      return compare_numbers<formula::lt>(y, b, a);
    case CompareOp::ge:
      return compare_numbers<formula::le>(y, b, a);
    case CompareOp::logical_and:
      return compare_as<formula::logical_and, bool>(y, a, b);
    case CompareOp::logical_or:
      return compare_as<formula::logical_or, bool>(y, a, b);
    case CompareOp::logical_xor:
      return compare_as<formula::logical_xor, bool>(y, a, b);
  }
}

void compare_number(Array& y, const Array& x, double number, CompareOp op) {
  compare(y, x, repeated(number, x.dtype(), x.shape()), op);
}

}  // namespace cpu

namespace {

Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  check_defined(name_of(op), a, b);
  const NoGrad no_grad;
  const DType dtype = promote(a, b);
  const Shape shape = broadcast_shapes(name_of(op), a.shape(), b.shape());
  Tensor y = empty_result(shape, {boolean, a.device()}, {&a, &b});
  kernel::compare(y, to(a, dtype).array().expanded(shape), to(b, dtype).array().expanded(shape),
                  op);
  return y;
}

Tensor compare(CompareOp op, const Tensor& x, const Scalar& number) {
  check_defined(name_of(op), x);
  const DType dtype = promote(x, number);
  if (dtype == i64 && !number.exact()) return compare(op, x, tensor(number.integer, x.device()));
  const NoGrad no_grad;
  Tensor y = empty_result(x.shape(), {boolean, x.device()}, {&x});
  kernel::compare_number(y, to(x, dtype), number.value, op);
  return y;
}

}  // namespace

Tensor operator==(const Tensor& a, const Tensor& b) { return compare(CompareOp::eq, a, b); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return compare(CompareOp::ne, a, b); }
Tensor operator<(const Tensor& a, const Tensor& b) { return compare(CompareOp::lt, a, b); }
Tensor operator<=(const Tensor& a, const Tensor& b) { return compare(CompareOp::le, a, b); }
Tensor operator>(const Tensor& a, const Tensor& b) { return compare(CompareOp::gt, a, b); }
Tensor operator>=(const Tensor& a, const Tensor& b) { return compare(CompareOp::ge, a, b); }
Tensor operator==(const Tensor& a, const Scalar& b) { return compare(CompareOp::eq, a, b); }
Tensor operator!=(const Tensor& a, const Scalar& b) { return compare(CompareOp::ne, a, b); }
Tensor operator<(const Tensor& a, const Scalar& b) { return compare(CompareOp::lt, a, b); }
Tensor operator<=(const Tensor& a, const Scalar& b) { return compare(CompareOp::le, a, b); }
Tensor operator>(const Tensor& a, const Scalar& b) { return compare(CompareOp::gt, a, b); }
Tensor operator>=(const Tensor& a, const Scalar& b) { return compare(CompareOp::ge, a, b); }

Tensor operator==(const Scalar& a, const Tensor& b) { return compare(CompareOp::eq, b, a); }
Tensor operator!=(const Scalar& a, const Tensor& b) { return compare(CompareOp::ne, b, a); }
Tensor operator<(const Scalar& a, const Tensor& b) { return compare(CompareOp::gt, b, a); }
Tensor operator<=(const Scalar& a, const Tensor& b) { return compare(CompareOp::ge, b, a); }
Tensor operator>(const Scalar& a, const Tensor& b) { return compare(CompareOp::lt, b, a); }
Tensor operator>=(const Scalar& a, const Tensor& b) { return compare(CompareOp::le, b, a); }

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::logical_and, a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) { return compare(CompareOp::logical_or, a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return compare(CompareOp::logical_xor, a, b);
}
Tensor logical_not(const Tensor& x) {
  check_defined("logical_not", x);
  return compare(CompareOp::eq, x, false);
}

Tensor isnan(const Tensor& x) {
  check_defined("isnan", x);
  return compare(CompareOp::ne, x, x);
}
Tensor isinf(const Tensor& x) {
  check_defined("isinf", x);
  if (!x.is_floating()) return full(x.shape(), 0, {boolean, x.device()});
  return abs(x.detach()) == std::numeric_limits<double>::infinity();
}
Tensor isfinite(const Tensor& x) {
  check_defined("isfinite", x);
  if (!x.is_floating()) return full(x.shape(), 1, {boolean, x.device()});
  return abs(x.detach()) < std::numeric_limits<double>::infinity();
}

// |a - b| <= atol + rtol |b|, or the same infinity
Tensor isclose(const Tensor& left, const Tensor& right, double rtol, double atol, bool equal_nan) {
  check_defined("isclose", left, right);
  INK_CHECK(rtol >= 0 && atol >= 0, "isclose: expected tolerances of 0 or more, got rtol ", rtol,
            " and atol ", atol);
  broadcast_shapes("isclose", left.shape(), right.shape());
  const NoGrad no_grad;
  const DType dtype = promote(left, right), wide = is_floating(dtype) ? dtype : f64;
  const Tensor a = left.to(wide), b = right.to(wide);
  Tensor close = left == right;
  if (rtol > 0 || atol > 0) {
    const Tensor distance = abs(a - b);  // that of two integers may be no int64
    close = logical_or(close, logical_and(isfinite(distance), distance <= abs(b) * rtol + atol));
  }
  return equal_nan ? logical_or(close, logical_and(isnan(a), isnan(b))) : close;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  check_defined("allclose", a, b);
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}

bool equal(const Tensor& a, const Tensor& b) {
  check_defined("equal", a, b);
  return a.shape() == b.shape() && all(a == b).item<bool>();
}

}  // namespace ink
