// Elementwise ops of two tensors, or a tensor and a number. The formulas are in loops/pointwise.h.
// The vjps are written with public ops and so can be differentiated again.
#include <cmath>
#include <utility>

#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/map_formula.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

// ---- kernels

namespace cpu {

// f(a, b)
template <class F, class T>
struct Both {
  T operator()(T a, T b) const { return F::f(a, b); }
  static bool fits(T a, T b) { return F::fits(a, b); }
};

template <class F>
static void map_both(Array& y, const Array& a, const Array& b, BinaryOp op) {
  if constexpr (requires { typename F::Exchanged; }) {
    map_both<typename F::Exchanged>(y, b, a, op);
  } else {
    for_domain<F>(name_of(op), a.dtype(),
                  [&]<class T>(T) { map_formula<Both, F, compute_t<T>>(y, a, b); });
  }
}

void binary(Array& y, const Array& a, const Array& b, BinaryOp op) {
  visit(op, [&]<class F>(F) { map_both<F>(y, a, b, op); });
}

void binary_number(Array& y, const Array& x, double number, BinaryOp op) {
  binary(y, x, repeated(number, x.dtype() == bf16 ? f32 : x.dtype(), x.shape()), op);
}

}  // namespace cpu

namespace {

// The values of a op b, which have one dtype, or f32 and bf16 for a sum, or for b a factor(). Bools
// are computed as integers: + is or, * is and.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const NoGrad no_grad;
  if (a.dtype() == boolean) return to(binary(op, to(a, i64), to(b, i64)), boolean);
  const Shape shape = broadcast_shapes(name_of(op), a.shape(), b.shape());
  Tensor y = empty_result(shape, {promote(a, b), a.device()}, {&a, &b});
  kernel::binary(y, a.array().expanded(shape), b.array().expanded(shape), op);
  return y;
}

// The values of x op number; x already has the dtype of the result.
Tensor binary(BinaryOp op, const Tensor& x, const Scalar& number) {
  if (x.dtype() == boolean || needs_tensor(x, number))
    return binary(op, x, scalar_tensor(number, x.options()));
  return value_of(op, x, number_beside(x.dtype(), number, op));
}

// dx(), if input i needs it, summed where the input was broadcast. It is a function, so that an
// unwanted gradient is not computed.
template <class F>
Tensor if_needed(VjpContext& g, size_t i, const Shape& shape, F&& dx) {
  return g.needs(i) ? sum_to(dx(), shape) : Tensor();
}

// Saves b for the gradient of a; saves nothing if a needs no gradient.
Saved saved_for(const Tensor& a, const Tensor& b) {
  return Saved::input(a.requires_grad() ? b : Tensor());
}

}  // namespace

// ---- two tensors

// da = dy, db = dy
Tensor add(const Tensor& left, const Tensor& right) {
  check_defined("add", left, right);
  const bool residual = promote(left, right) == f32 && left.is_floating() && right.is_floating() &&
                        left.dim() > 0 && right.dim() > 0;  // then f32 or bf16 each
  const auto [a, b] = residual ? std::pair(left, right) : promoted("add", left, right);
  return record("add", {a, b}, binary(BinaryOp::add, a, b),
                [sa = a.shape(), sb = b.shape(), ta = a.dtype(), tb = b.dtype()](
                    const Tensor& dy, VjpContext& g) -> Grads {
                  return {g.needs(0) ? to(sum_to(dy, sa), ta) : Tensor(),
                          g.needs(1) ? to(sum_to(dy, sb), tb) : Tensor()};
                });
}

// da = dy, db = -dy
Tensor sub(const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted("sub", left, right);
  check_sub("sub", left.dtype(), right.dtype());
  return record("sub", {a, b}, binary(BinaryOp::sub, a, b),
                [sa = a.shape(), sb = b.shape()](const Tensor& dy, VjpContext& g) -> Grads {
                  return {if_needed(g, 0, sa, [&] { return dy; }),
                          if_needed(g, 1, sb, [&] { return neg(sum_to(dy, sb)); })};
                });
}

Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  const Tensor y = add(a, scaled("add", a, b, alpha));
  return shown_as("add", to(y, promote(a, b)));
}
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  check_defined("sub", a, b);
  check_sub("sub", a.dtype(), b.dtype());
  const Tensor y = sub(a, scaled("sub", a, b, alpha));
  return shown_as("sub", to(y, promote(a, b)));
}

// da = dy b, db = dy a
Tensor mul(const Tensor& left, const Tensor& right) {
  check_defined("mul", left, right);
  const DType dtype = promote(left, right);
  const Tensor a = to(left, dtype), b = factor(right, dtype);
  return record("mul", {a, b}, binary(BinaryOp::mul, a, b),
                [x = saved_for(b, a), y = saved_for(a, b), sa = a.shape(), sb = b.shape(),
                 tb = b.dtype()](const Tensor& dy, VjpContext& g) -> Grads {
                  return {if_needed(g, 0, sa, [&] { return dy * *y; }),
                          if_needed(g, 1, sb, [&] { return to(sum_to(dy * *x, sb), tb); })};
                });
}

// da = dy / b, db = -dy (a / b) / b
Tensor div(const Tensor& left, const Tensor& right) {
  check_defined("div", left, right);
  const DType dtype = floating(promote(left, right));
  const Tensor a = to(left, dtype), b = factor(right, dtype);
  const auto vjp = [x = saved_for(b, a), divisor = Saved::input(b), sa = a.shape(), sb = b.shape(),
                    tb = b.dtype()](const Tensor& dy, VjpContext& g) -> Grads {
    return {if_needed(g, 0, sa, [&] { return dy / *divisor; }), if_needed(g, 1, sb, [&] {
              return to(sum_to(-dy * (*x / *divisor) / *divisor, sb), tb);
            })};
  };
  return record("div", {a, b}, binary(BinaryOp::div, a, b), vjp);
}

// da = dy b a^(b - 1), 0 where b = 0;  db = dy y log a, 0 where a = 0 and b >= 0
Tensor pow(const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted("pow", left, right);
  Tensor y = binary(BinaryOp::pow, a, b);
  const auto vjp = [y = Saved::output(b.requires_grad() ? y : Tensor()), x = Saved::input(left),
                    power = Saved::input(right), sa = a.shape(),
                    sb = b.shape()](const Tensor& dy, VjpContext& g) -> Grads {
    const Tensor base = *x, exponent = *power;
    const auto of_base = [&] {
      return masked_fill(dy * (exponent * pow(base, exponent - 1)), exponent == 0, 0);
    };
    const auto of_exponent = [&] {
      return dy * masked_fill(*y * log(to(base, dy.dtype())), (base == 0) & (exponent >= 0), 0);
    };
    return {if_needed(g, 0, sa, of_base), if_needed(g, 1, sb, of_exponent)};
  };
  return shown_as("pow.1", record("pow", {a, b}, y, vjp));
}

// y = the angle of the point (b, a).   da = dy b / (a^2 + b^2), db = -dy a / (a^2 + b^2), and 0
// where a = b = 0
Tensor atan2(const Tensor& left, const Tensor& right) {
  check_defined("atan2", left, right);
  const DType dtype = floating(promote(left, right));
  const Tensor a = to(left, dtype), b = to(right, dtype);
  return record(
      "atan2", {a, b}, binary(BinaryOp::atan2, a, b),
      [y = Saved::input(a), x = Saved::input(b)](const Tensor& dy, VjpContext& g) -> Grads {
        const Tensor p = *y, q = *x, square = p * p + q * q;
        const Tensor share = dy * masked_fill(1 / square, square == 0, 0);
        return {if_needed(g, 0, p.shape(), [&] { return share * q; }),
                if_needed(g, 1, q.shape(), [&] { return share * -p; })};
      });
}

// y = a - b floor(a / b).   da = dy, db = -dy floor(a / b)
Tensor remainder(const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted("remainder", left, right);
  check_remainder(a, b);
  const Tensor rest = binary(BinaryOp::remainder, a, b);
  const auto vjp = [x = saved_for(b, a), y = saved_for(b, b), rest = saved_for(b, rest),
                    sa = a.shape(), sb = b.shape()](const Tensor& dy, VjpContext& g) -> Grads {
    const auto times = [&] {  // floor(x / y), of which rounding may miss the right side of a step
      const Tensor p = (*x).detach(), q = (*y).detach(), r = *rest, whole = p - r;
      const Tensor n = where(isinf(whole), p / q - r / q, whole / q);  // p - r may overflow
      return where(q == 0, p / q, where(isinf(r), -1, round(n)));
    };
    return {if_needed(g, 0, sa, [&] { return dy; }),
            if_needed(g, 1, sb, [&] { return -dy * times(); })};
  };
  return shown_as("remainder.1", record("remainder", {a, b}, rest, vjp));
}

// The values of a op b, integers or bools, which count as 0 and 1.
static Tensor bitwise(BinaryOp op, const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted(name_of(op), left, right);
  broadcast_shapes(name_of(op), a.shape(), b.shape());  // so that an error has our name
  if (a.dtype() != boolean) return binary(op, a, b);
  if (op == BinaryOp::bitwise_xor) return logical_xor(a, b);
  return op == BinaryOp::bitwise_and ? logical_and(a, b) : logical_or(a, b);
}

Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise(BinaryOp::bitwise_and, a, b); }
Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise(BinaryOp::bitwise_or, a, b); }
Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise(BinaryOp::bitwise_xor, a, b); }

// A number in a dtype of its own kind.
static Tensor as_tensor(const char* op, const Tensor& x, const Scalar& n) {
  check_defined(op, x);
  INK_CHECK(!is_floating(n.dtype), op, ": expected an integer, got ", n);
  return scalar_tensor(n, {promote(x.dtype(), n.dtype), x.device()});
}
Tensor operator&(const Tensor& a, const Scalar& b) { return a & as_tensor("bitwise_and", a, b); }
Tensor operator|(const Tensor& a, const Scalar& b) { return a | as_tensor("bitwise_or", a, b); }
Tensor operator^(const Tensor& a, const Scalar& b) { return a ^ as_tensor("bitwise_xor", a, b); }

// Half of dy where a and b tie, 0 where `loses`, all of dy elsewhere.
static Tensor winners_share(const Tensor& dy, const Tensor& tie, const Tensor& loses) {
  return masked_fill(where(tie, dy * 0.5, dy), loses, 0);
}

// maximum or minimum.   da = dy where a wins, dy / 2 at a tie
static Tensor extremum(const char* name, BinaryOp op, const Tensor& left, const Tensor& right) {
  const auto [a, b] = promoted(name, left, right);
  return record(
      name, {a, b}, binary(op, a, b),
      [op, x = Saved::input(a), y = Saved::input(b)](const Tensor& dy, VjpContext& g) -> Grads {
        const Tensor p = *x, q = *y, tie = p == q;
        const bool larger = op == BinaryOp::maximum;
        return {if_needed(g, 0, p.shape(),
                          [&] { return winners_share(dy, tie, larger ? p < q : p > q); }),
                if_needed(g, 1, q.shape(),
                          [&] { return winners_share(dy, tie, larger ? q < p : q > p); })};
      });
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  return extremum("maximum", BinaryOp::maximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return extremum("minimum", BinaryOp::minimum, a, b);
}

// A number as the tensor that maximum and minimum compare with x.
static Tensor beside(const char* op, const Tensor& x, const Scalar& number) {
  check_defined(op, x);
  return scalar_tensor(number, {promote(x, number), x.device()});
}
Tensor maximum(const Tensor& x, const Scalar& n) { return maximum(x, beside("maximum", x, n)); }
Tensor minimum(const Tensor& x, const Scalar& n) { return minimum(x, beside("minimum", x, n)); }

Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }

// y = min(max(x, low), high).   dx = dy between the bounds; a bound that decides y gets dy instead;
// where x equals one of two different bounds, x and the bound get half of dy each
Tensor clamp(const Tensor& input, const Tensor& min, const Tensor& max) {
  check_defined("clamp", input);
  INK_CHECK(min.defined() || max.defined(), "clamp: expected a min or a max, got neither");
  Shape shape = input.shape();
  for (const Tensor* bound : {&min, &max})
    if (bound->defined()) shape = broadcast_shapes("clamp", shape, bound->shape());
  if (!max.defined()) return extremum("clamp", BinaryOp::maximum, input, min);
  if (!min.defined()) return extremum("clamp", BinaryOp::minimum, input, max);
  const DType dtype = promote(input, min, max);
  const Tensor x = to(input, dtype), low = to(min, dtype), high = to(max, dtype);
  const Tensor y = binary(BinaryOp::minimum, binary(BinaryOp::maximum, x, low), high);
  return record(
      "clamp", {x, low, high}, y,
      [x = Saved::input(x), low = Saved::input(low), high = Saved::input(high)](
          const Tensor& dy, VjpContext& g) -> Grads {
        const Tensor v = *x, a = *low, b = *high, half = dy * 0.5, open = a < b;
        const auto share = [&](const Tensor& all, const Tensor& tie) {
          return masked_fill(where(tie, half, dy), ~(all | tie), 0);
        };
        const Tensor outside = (v < a) | (v > b);
        const Tensor at_low = (v == a) & open, at_high = (v == b) & open;
        return {if_needed(g, 0, v.shape(),
                          [&] { return share(~(outside | at_low | at_high), at_low | at_high); }),
                if_needed(g, 1, a.shape(), [&] { return share((v < a) & (a <= b), at_low); }),
                if_needed(g, 2, b.shape(),
                          [&] { return share(((v > b) & (a <= b)) | (b < a), at_high); })};
      });
}

Tensor clamp_min(const Tensor& x, const Tensor& min) {
  check_defined("clamp_min", x, min);
  broadcast_shapes("clamp_min", x.shape(), min.shape());
  return shown_as("clamp_min.1", clamp(x, min, Tensor()));
}
Tensor clamp_max(const Tensor& x, const Tensor& max) {
  check_defined("clamp_max", x, max);
  broadcast_shapes("clamp_max", x.shape(), max.shape());
  return shown_as("clamp_max.1", clamp(x, Tensor(), max));
}
Tensor clamp_min(const Tensor& x, const Scalar& min) {
  check_defined("clamp_min", x);
  check_in_range("clamp_min", min, promote(x, min));
  return shown_as("clamp_min", clamp(x, min));
}
Tensor clamp_max(const Tensor& x, const Scalar& max) {
  check_defined("clamp_max", x);
  check_in_range("clamp_max", max, promote(x, max));
  return shown_as("clamp_max", clamp(x, {}, max));
}

// ---- a tensor and a number

// x op number with the gradient dx(dy); x already has the dtype of the result.
template <class Dx>
static Tensor with_number(BinaryOp op, const Tensor& x, const Scalar& number, Dx dx) {
  return record(name_of(op), {x}, binary(op, x, number),
                [dx](const Tensor& dy) -> Grads { return {dx(dy)}; });
}

Tensor operator+(const Tensor& x, const Scalar& n) {
  return with_number(BinaryOp::add, promoted("add", x, n), n, [](auto& dy) { return dy; });
}
Tensor operator-(const Tensor& x, const Scalar& n) {
  const Tensor a = promoted("sub", x, n);
  check_sub("sub", x.dtype(), n.dtype);
  return with_number(BinaryOp::sub, a, n, [](auto& dy) { return dy; });
}
Tensor operator-(const Scalar& n, const Tensor& x) {
  const Tensor a = promoted("sub", x, n);
  check_sub("sub", x.dtype(), n.dtype);
  return with_number(BinaryOp::rsub, a, n, [](auto& dy) { return -dy; });
}
Tensor operator*(const Tensor& x, const Scalar& n) {
  return with_number(BinaryOp::mul, promoted("mul", x, n), n, [n](auto& dy) { return dy * n; });
}
Tensor operator/(const Tensor& x, const Scalar& n) {
  return with_number(BinaryOp::div, floating("div", x), n, [n](auto& dy) { return dy / n; });
}
Tensor operator%(const Tensor& x, const Scalar& n) {
  const Tensor a = promoted("remainder", x, n);
  check_remainder(x, n);
  return with_number(BinaryOp::remainder, a, n, [](auto& dy) { return dy; });
}

Tensor add(const Tensor& x, const Scalar& n, const Scalar& alpha) {
  return x + scaled("add", x, n, alpha);
}
Tensor sub(const Tensor& x, const Scalar& n, const Scalar& alpha) {
  check_defined("sub", x);
  check_sub("sub", x.dtype(), n.dtype);
  return x - scaled("sub", x, n, alpha);
}
Tensor mul(const Tensor& x, const Scalar& n) { return x * n; }
Tensor div(const Tensor& x, const Scalar& n) { return x / n; }

Tensor operator%(const Scalar& n, const Tensor& x) {
  check_defined("remainder", x);
  return remainder(scalar_tensor(n, {promote(x, n), x.device()}), x);
}
Tensor remainder(const Tensor& x, const Scalar& n) { return x % n; }

// y = 1 / x.   dx = -dy y^2
static Tensor reciprocal(const Tensor& x) {
  Tensor y = binary(BinaryOp::rdiv, x, 1);
  return record("reciprocal", {x}, y,
                [y = Saved::output(y)](const Tensor& dy) -> Grads { return {-dy * (*y * *y)}; });
}

// As in PyTorch, backward does not read the result's memory, even if the number is 1.
Tensor operator/(const Scalar& number, const Tensor& x) {
  return reciprocal(floating("div", x)) * number;
}

// The values of x^e, without libm for common exponents.
static Tensor power(const Tensor& x, const Scalar& exponent) {
  const NoGrad no_grad;
  const double e = number_beside(x.dtype(), exponent, BinaryOp::pow);
  if (e == 2) return binary(BinaryOp::mul, x, x);
  if (e == 3) return value_of(UnaryOp::pow3, x);
  if (e == -1) return binary(BinaryOp::rdiv, x, 1);
  if (e == 0.5) return sqrt(x);
  if (e == -0.5) return rsqrt(x);
  return binary(BinaryOp::pow, x, exponent);
}

// dx = dy e x^(e - 1), and 0 for e = 0
Tensor pow(const Tensor& input, const Scalar& exponent) {
  const Tensor x = promoted("pow", input, exponent);
  const double e = exponent.value;
  INK_CHECK(x.is_floating() || e >= 0, "pow: expected an exponent of 0 or more for ", x.dtype(),
            ", got ", e, "; convert the tensor to a floating dtype first");
  return record("pow", {x}, power(x, exponent),
                [e, x = Saved::input(x)](const Tensor& dy) -> Grads {
                  if (e == 0) return {zeros_like(dy)};
                  return {dy * ((e == 2 ? *x : pow(*x, e - 1)) * e)};
                });
}

// y = number^x.   dx = dy y log number, and 0 for number = 0 and x >= 0
Tensor pow(const Scalar& number, const Tensor& exponent) {
  const Tensor x = promoted("pow", exponent, number);
  Tensor y = binary(BinaryOp::rpow, x, number);
  const auto vjp = [a = number.value, x = Saved::input(x),
                    y = Saved::output(y)](const Tensor& dy) -> Grads {
    const Tensor slope = *y * std::log(a);
    return {dy * (a == 0 ? masked_fill(slope, *x >= 0, 0) : slope)};
  };
  return shown_as("pow.2", record("pow", {x}, y, vjp));
}

// ---- operators

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
Tensor operator+(const Scalar& a, const Tensor& b) { return b + a; }
Tensor operator*(const Scalar& a, const Tensor& b) { return b * a; }
Tensor operator-(const Tensor& x) { return neg(x); }
Tensor operator~(const Tensor& x) {
  check_defined("bitwise_not", x);
  if (x.dtype() == boolean) return logical_not(x);
  Tensor y = empty_like(x);
  kernel::unary(y, x, UnaryOp::bitwise_not);
  return y;
}

}  // namespace ink
