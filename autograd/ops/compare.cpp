// Comparisons and logical ops: bool tensors, without gradients.
#include <limits>
#include <type_traits>

#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/map.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace cpu {

// F(a, b). Logical ops see both as bools.
template <class F>
static void compare_by(Array& y, const Array& a, const Array& b) {
  const auto compare_as = [&]<class T>(T) {
    map(
        y, [](T p, T q) { return F::f(p, q); }, a, b);
  };
  if constexpr (requires { typename F::Exchanged; }) {
    compare_by<typename F::Exchanged>(y, b, a);
  } else if constexpr (std::is_base_of_v<formula::OnBools, F>) {
    compare_as(bool{});
  } else {
    for_any(a.dtype(), [&]<class T>(T) { compare_as(compute_t<T>{}); });
  }
}

void compare(Array& y, const Array& a, const Array& b, CompareOp op) {
  visit(op, [&]<class F>(F) { compare_by<F>(y, a, b); });
}

void compare_number(Array& y, const Array& x, double number, CompareOp op) {
  compare(y, x, repeated(number, x.dtype(), x.shape()), op);
}

}  // namespace cpu

static Tensor compare(CompareOp op, const Tensor& a, const Tensor& b) {
  check_defined(name_of(op), a, b);
  const NoGrad no_grad;
  const DType dtype = promote(a, b);
  const Shape shape = broadcast_shapes(name_of(op), a.shape(), b.shape());
  Tensor y = empty_result(shape, {boolean, a.device()}, {&a, &b});
  kernel::compare(y, to(a, dtype).array().expanded(shape), to(b, dtype).array().expanded(shape),
                  op);
  return y;
}

static Tensor compare(CompareOp op, const Tensor& x, const Scalar& number) {
  check_defined(name_of(op), x);
  const DType dtype = promote(x, number);
  if (dtype == i64 && !number.exact()) return compare(op, x, tensor(number.integer, x.device()));
  const NoGrad no_grad;
  Tensor y = empty_result(x.shape(), {boolean, x.device()}, {&x});
  kernel::compare_number(y, to(x, dtype), number.value, op);
  return y;
}

// a sign b, where the first of them, or the second, may be a number; b turned a means the same.
#define COMPARISON(sign, op, turned)                                                              \
  Tensor operator sign(const Tensor& a, const Tensor& b) { return compare(CompareOp::op, a, b); } \
  Tensor operator sign(const Tensor& a, const Scalar& b) { return compare(CompareOp::op, a, b); } \
  Tensor operator sign(const Scalar& a, const Tensor& b) {                                        \
    return compare(CompareOp::turned, b, a);                                                      \
  }
COMPARISON(==, eq, eq)
COMPARISON(!=, ne, ne)
COMPARISON(<, lt, gt)
COMPARISON(<=, le, ge)
COMPARISON(>, gt, lt)
COMPARISON(>=, ge, le)
#undef COMPARISON

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
