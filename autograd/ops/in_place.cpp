// Writes into a tensor's own memory.
//
// Without a graph, a write is one kernel call. With one, the ordinary op runs, its value is copied
// into the memory, and the tensor takes over the op's place in the graph. (engine/writes.cpp
// refuses writes that cannot be recorded.)
#include <functional>

#include <ostream>

#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace {

struct AsList {  // [2, 3], as PyTorch prints sizes
  const Shape& shape;
  friend std::ostream& operator<<(std::ostream& out, const AsList& list) {
    out << '[';
    for (int64_t i = 0; i < list.shape.size(); ++i) out << (i ? ", " : "") << list.shape[i];
    return out << ']';
  }
};

int category(DType dtype) { return is_floating(dtype) ? 2 : dtype == i64 ? 1 : 0; }

// Can a result of shape (x.shape() broadcast with `other`) and dtype `result` be written into x?
void check_fits(const char* op, const Tensor& x, const Shape& other, DType result) {
  const Shape shape = broadcast_shapes(op, x.shape(), other);
  INK_CHECK(shape == x.shape(), "output with shape ", AsList{x.shape()},
            " doesn't match the broadcast shape ", AsList{shape});
  INK_CHECK(category(result) <= category(x.dtype()), op, ": the result, ", result,
            ", does not fit into the tensor, ", x.dtype());
  INK_CHECK(!x.layout().repeats(), op, ": several elements of ", x.shape(),
            " lie in one place (it was expanded or unfolded); clone() it first");
}

// y seen with x's shape. y is copied first if it overlaps x in any way but element by element,
// because x is about to be written.
Array operand(const Array& y, const Array& x) {
  const Array seen = y.expanded(x.shape());
  const bool apart = seen.storage() != x.storage() || seen.layout() == x.layout();
  return apart ? seen : copied(seen, seen.dtype());
}

// x as an operand of the write that replaces it. For a view this is a new view of its base, as in
// PyTorch: hooks of the old view get the gradients of its other uses, but not those of the write.
Tensor before_write(const Tensor& x) {
  const Tensor base(x.impl().base);
  return base.requires_grad() ? detail::as_strided(base, x.layout()) : x;
}

// Writes an ordinary op's value into x, which takes over its place in the graph.
Tensor& assign(Tensor& x, const Tensor& result, bool recorded) {
  const Tensor value = to(result, x.dtype());
  if (recorded && !value.is_same(result) && result.slot()->node) {
    const Node& op = *result.slot()->node;
    shown_as(op.shown ? op.shown : op.name, value);
  }
  kernel::copy(x, value);
  if (recorded) detail::record_write(x, value);
  return x;
}

// x op= y
template <class Op>
Tensor& in_place(const char* name, BinaryOp code, Tensor& x, const Tensor& y, Op op) {
  x.impl(name);
  check_defined(name, y);
  const DType meet = promote(x, y), floats = context().default_dtype;
  if (code == BinaryOp::sub) check_sub(name, x.dtype(), y.dtype());
  check_fits(name, x, y.shape(), code == BinaryOp::div && !is_floating(meet) ? floats : meet);
  const bool recorded = detail::check_write(name, x, y.requires_grad());
  if (recorded || meet != x.dtype() || meet == boolean)
    return assign(x, op(before_write(x), y), recorded);
  const NoGrad no_grad;
  const bool is_factor = code == BinaryOp::mul || code == BinaryOp::div;
  kernel::binary(x, x, operand(is_factor ? factor(y, meet) : to(y, meet), x), code);
  return x;
}

// x op= number
template <class Op>
Tensor& in_place(const char* name, BinaryOp code, Tensor& x, const Scalar& number, Op op) {
  x.impl(name);
  const DType floats = context().default_dtype;
  check_fits(name, x, x.shape(),
             code == BinaryOp::div && !x.is_floating() ? floats : promote(x, number));
  if (detail::check_write(name, x, false)) return assign(x, op(before_write(x), number), true);
  if (x.dtype() == boolean || needs_tensor(x, number)) return assign(x, op(x, number), false);
  kernel::binary_number(x, x, number_beside(x.dtype(), number, code), code);
  return x;
}

// op(a, b), for a product and the like: the gradient of b needs the value of a that is about to be
// overwritten.
template <class Op>
auto kept_left(Op op) {
  return [op](const Tensor& a, const Tensor& b) { return op(b.requires_grad() ? clone(a) : a, b); };
}

// A write that keeps nothing of x still has x as an input, with a gradient of 0. For a view,
// copy_slices does that.
Tensor old_value(const Tensor& x) { return x.is_view() ? Tensor() : x; }

}  // namespace

// ---- arithmetic

Tensor& Tensor::add_(const Tensor& y, const Scalar& alpha) {
  impl("add_");
  check_defined("add_", y);
  return in_place("add_", BinaryOp::add, *this, scaled("add_", *this, y, alpha), std::plus());
}
Tensor& Tensor::sub_(const Tensor& y, const Scalar& alpha) {
  impl("sub_");
  check_defined("sub_", y);
  check_sub("sub_", dtype(), y.dtype());
  return in_place("sub_", BinaryOp::sub, *this, scaled("sub_", *this, y, alpha), std::minus());
}
Tensor& Tensor::mul_(const Tensor& y) {
  return in_place("mul_", BinaryOp::mul, *this, y, kept_left(std::multiplies()));
}
Tensor& Tensor::div_(const Tensor& y) {
  return in_place("div_", BinaryOp::div, *this, y, kept_left(std::divides()));
}
Tensor& Tensor::add_(const Scalar& y, const Scalar& alpha) {
  impl("add_");
  return in_place("add_", BinaryOp::add, *this, scaled("add_", *this, y, alpha), std::plus());
}
Tensor& Tensor::sub_(const Scalar& y, const Scalar& alpha) {
  impl("sub_");
  check_sub("sub_", dtype(), y.dtype);
  return in_place("sub_", BinaryOp::sub, *this, scaled("sub_", *this, y, alpha), std::minus());
}
Tensor& Tensor::mul_(Scalar y) {
  return in_place("mul_", BinaryOp::mul, *this, y, std::multiplies());
}
Tensor& Tensor::div_(Scalar y) { return in_place("div_", BinaryOp::div, *this, y, std::divides()); }

Tensor& Tensor::remainder_(Tensor y) {
  impl("remainder_");
  check_defined("remainder_", y);
  check_remainder(*this, y);
  return in_place("remainder_", BinaryOp::remainder, *this, y, kept_left(std::modulus()));
}
Tensor& Tensor::remainder_(Scalar y) {
  impl("remainder_");
  check_remainder(*this, y);
  return in_place("remainder_", BinaryOp::remainder, *this, y, std::modulus());
}

// ---- new values

// dx = 0
void detail::record_fill(const char* op, Tensor& x) {
  record_write(x, record(op, {old_value(x)}, x.detach(),
                         [](const Tensor& dy) -> Grads { return {zeros_like(dy)}; }));
}

static Tensor& filled(const char* op, Tensor& x, const Scalar& value) {
  x.impl(op);
  check_fits(op, x, x.shape(), boolean);
  check_in_range(op, value, x.dtype(), x.numel());
  const bool recorded = detail::check_write(op, x, false);
  if (needs_tensor(x, value)) {
    kernel::copy(x, scalar_tensor(value, x.options()).array().expanded(x.shape()));
  } else {
    kernel::fill(x, value.value);
  }
  if (recorded) detail::record_fill(op, x);
  return x;
}

Tensor& Tensor::fill_(Scalar value) { return filled("fill_", *this, value); }
Tensor& Tensor::zero_() { return filled("zero_", *this, 0); }

Tensor bits_for(const Tensor& a, const Tensor& bits) {
  check_fits("bitwise", a, bits.shape(), bits.dtype());
  return bits;
}

// dx = 0, dsource = dy in source's dtype, summed where it was broadcast
Tensor& Tensor::copy_(const Tensor& source) {
  impl("copy_");
  check_defined("copy_", source);
  const bool recorded = detail::check_write("copy_", *this, source.requires_grad());
  if (source.is_same(*this)) {  // still counts as a write, even to an expanded tensor
    bump_version();
  } else {
    check_fits("copy_", *this, source.shape(), boolean);
    const NoGrad no_grad;
    kernel::copy(*this, operand(source.to(device()), *this));
  }
  if (!recorded || layout().repeats()) return *this;
  const auto vjp = [from = source.shape(), options = source.options()](const Tensor& dy,
                                                                       VjpContext& g) -> Grads {
    return {g.needs(0) ? zeros_like(dy) : Tensor(),
            g.needs(1) ? sum_to(dy.to(options.dtype), from).to(options.device) : Tensor()};
  };
  detail::record_write(*this, record("copy_", {old_value(*this), source}, detach(), vjp));
  return *this;
}

Tensor& Tensor::masked_fill_(const Tensor& mask, const Scalar& value) {
  impl("masked_fill_");
  check_masked_fill("masked_fill_", *this, mask, value);
  check_fits("masked_fill_", *this, mask.shape(), boolean);
  const bool recorded = detail::check_write("masked_fill_", *this, false);
  if (recorded || needs_tensor(*this, value))
    return assign(*this, ink::masked_fill(before_write(*this), mask, value), recorded);
  kernel::masked_fill(*this, *this, operand(mask, *this), value.value);
  return *this;
}

Tensor& Tensor::index_put_(const std::vector<Tensor>& ids, const Tensor& values, bool accumulate) {
  impl("index_put_");
  check_defined("index_put_", values);
  check_fits("index_put_", *this, shape(), dtype());
  const bool recorded = detail::check_write("index_put_", *this, values.requires_grad());
  return assign(*this, ink::index_put(before_write(*this), ids, values, accumulate), recorded);
}

// ---- x = op(x). The op's value is new memory, so the write does not destroy what the op saved.

template <class Op>
static Tensor& replace(const char* name, Tensor& x, Op op, bool value_in_graph = false) {
  x.impl(name);
  check_fits(name, x, x.shape(), x.dtype());
  const bool recorded = detail::check_write(name, x, value_in_graph);
  const Tensor y = op(recorded ? before_write(x).clone() : x);
  check_fits(name, x, x.shape(), y.dtype());
  return assign(x, y, recorded);
}

Tensor& Tensor::scatter_(int64_t dim, const Tensor& ids, const Tensor& source) {
  const auto written = [&](const Tensor& x) { return ink::scatter(x, dim, ids, source); };
  return replace("scatter_", *this, written, source.requires_grad());
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& ids, const Scalar& value) {
  return replace("scatter_", *this,
                 [&](const Tensor& x) { return ink::scatter(x, dim, ids, value); });
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& ids, const Tensor& source) {
  const auto added = [&](const Tensor& x) { return ink::scatter_add(x, dim, ids, source); };
  return replace("scatter_add_", *this, added, source.requires_grad());
}
Tensor& Tensor::pow_(Scalar e) {
  return replace("pow_", *this, [&](const Tensor& x) { return ink::pow(x, e); });
}
Tensor& Tensor::pow_(Tensor e) {
  impl("pow_");
  check_defined("pow_", e);
  check_fits("pow_", *this, e.shape(), promote(*this, e));
  const auto power = [&](const Tensor& x) { return ink::pow(x, e); };
  return replace("pow_", *this, power, e.requires_grad());
}
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) {
  return replace("clamp_", *this, [&](const Tensor& x) { return ink::clamp(x, min, max); });
}
Tensor& Tensor::clamp_(const Tensor& min, const Tensor& max) {
  impl("clamp_");
  for (const Tensor* bound : {&min, &max})
    if (bound->defined()) check_fits("clamp_", *this, bound->shape(), dtype());
  const auto clamped = [&](const Tensor& x) { return ink::clamp(x, min, max); };
  return replace("clamp_", *this, clamped, min.requires_grad() || max.requires_grad());
}
Tensor& Tensor::clamp_min_(Tensor min) {
  check_defined("clamp_min_", *this, min);
  return clamp_(min, Tensor());
}
Tensor& Tensor::clamp_max_(Tensor max) {
  check_defined("clamp_max_", *this, max);
  return clamp_(Tensor(), max);
}
Tensor& Tensor::clamp_min_(Scalar min) { return clamp_(min); }
Tensor& Tensor::clamp_max_(Scalar max) { return clamp_({}, max); }
Tensor& Tensor::atan2_(Tensor x) {
  impl("atan2_");
  check_defined("atan2_", x);
  check_fits("atan2_", *this, x.shape(), promote(*this, x));
  const auto angle = [&](const Tensor& y) { return ink::atan2(y, x); };
  return replace("atan2_", *this, angle, x.requires_grad());
}

#define IN_PLACE(name) \
  Tensor& Tensor::name##_() { return replace(#name "_", *this, ink::name); }
// clang-format off
IN_PLACE(exp) IN_PLACE(log) IN_PLACE(sqrt) IN_PLACE(neg) IN_PLACE(abs) IN_PLACE(tanh)
IN_PLACE(sigmoid) IN_PLACE(relu) IN_PLACE(square) IN_PLACE(rsqrt) IN_PLACE(sin) IN_PLACE(cos)
IN_PLACE(log1p) IN_PLACE(expm1) IN_PLACE(floor) IN_PLACE(ceil) IN_PLACE(round) IN_PLACE(trunc)
// clang-format on
#undef IN_PLACE

}  // namespace ink
