// where, masked_fill: a condition picks one of two values for each element.
#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/map.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace cpu {

void where(Array& y, const Array& condition, const Array& a, const Array& b) {
  for_any(y.dtype(), [&]<class T>(T) {
    map(
        y, [](bool c, T p, T q) { return c ? p : q; }, condition, a, b);
  });
}

void masked_fill(Array& y, const Array& x, const Array& mask, double value) {
  where(y, mask, repeated(value, y.dtype(), y.shape()), x);
}

}  // namespace cpu

// da = dy where the condition holds, db = dy elsewhere
Tensor where(const Tensor& condition, const Tensor& left, const Tensor& right) {
  check_defined("where", condition, left, right);
  INK_CHECK(condition.dtype() == boolean, "where: expected a bool condition, got ",
            condition.dtype());
  const auto [a, b] = promoted("where", left, right);
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  Tensor y = empty_result(shape, a.options(), {&condition, &a, &b});
  kernel::where(y, condition.array().expanded(shape), a.array().expanded(shape),
                b.array().expanded(shape));
  return record(
      "where", {condition, a, b}, y,
      [condition = Saved::input(condition), sa = a.shape(), sb = b.shape()](
          const Tensor& dy, VjpContext& g) -> Grads {
        return {Tensor(),
                g.needs(1) ? sum_to(masked_fill(dy, logical_not(*condition), 0), sa) : Tensor(),
                g.needs(2) ? sum_to(masked_fill(dy, *condition, 0), sb) : Tensor()};
      });
}

static Tensor number(const Scalar& value, const Options& options) {
  check_in_range("where", value, options.dtype, 1);
  return scalar_tensor(value, options);
}
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) {
  check_defined("where", condition, a);
  return where(condition, a, number(b, {promote(a, b), a.device()}));
}
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) {
  check_defined("where", condition, b);
  return where(condition, number(a, {promote(b, a), b.device()}), b);
}
Tensor where(const Tensor& condition, const Scalar& a, const Scalar& b) {
  check_defined("where", condition);
  const DType meet = promote(a.dtype, b.dtype);
  const Options options(meet == f64 ? context().default_dtype : meet, condition.device());
  return where(condition, number(a, options), number(b, options));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  check_defined("masked_fill", x, mask, value);
  INK_CHECK(value.dim() == 0, "masked_fill: expected a value without dimensions, got ",
            value.shape());
  return shown_as("masked_fill.1", where(mask, value.to(x.dtype()), x));
}

// dx = dy where the mask does not hold
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value) {
  check_masked_fill("masked_fill", x, mask, value);
  if (needs_tensor(x, value)) return masked_fill(x, mask, scalar_tensor(value, x.options()));
  const Shape shape = broadcast_shapes("masked_fill", x.shape(), mask.shape());
  Tensor y = empty_result(shape, x.options(), {&x, &mask});
  kernel::masked_fill(y, x.array().expanded(shape), mask.array().expanded(shape), value.value);
  return record("masked_fill", {x}, y,
                [mask = Saved::input(mask), from = x.shape()](const Tensor& dy) -> Grads {
                  return {sum_to(masked_fill(dy, *mask, 0), from)};
                });
}

}  // namespace ink
