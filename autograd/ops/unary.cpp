// Elementwise ops of one tensor. The formulas are in loops/pointwise.h.
//
// All are basic ops: their vjps can be differentiated again. If the gradient will not be
// differentiated, backward uses the formula's df instead, in one pass over memory.
#include <optional>

#include "autograd/kernels/elementwise.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/map_formula.h"
#include "autograd/ops.h"
#include "autograd/ops/shared/elementwise.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace cpu {

// f(x)
template <class F, class T>
struct Value {
  T operator()(T x) const { return F::f(x); }
  static bool fits(T x) { return F::fits(x); }
};

// dy f'(x); at: x or y, as df says.
template <class F, class T>
struct Derivative {
  T operator()(T at, T dy) const { return F::df(dy, at); }
  static bool fits(T at, T) { return F::fits(at); }
};

void unary(Array& y, const Array& x, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    for_domain<F>(name_of(op), x.dtype(),
                  [&]<class T>(T) { map_formula<Value, F, compute_t<T>>(y, x); });
  });
}

void unary_backward(Array& dx, const Array& dy, const Array& v, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    if constexpr (requires { F::df(1.0f, 1.0f); }) {
      for_computed(name_of(op), v.dtype(),
                   [&]<class C>(C) { map_formula<Derivative, F, C>(dx, v, dy); });
    } else {
      detail::fail({name_of(op), ": its formula has no df"});
    }
  });
}

void clamp(Array& y, const Array& x, double low, double high) {
  for_domain<formula::clamp>("clamp", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const C a = static_cast<C>(low), b = static_cast<C>(high);
    map(
        y, [a, b](C v) { return formula::clamp::f(v, a, b); }, x);
  });
}

}  // namespace cpu

namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  check_defined(name_of(op), x);
  return value_of(op, x);
}

// dy f'(v) in one pass, by df; or slope(dy, v), made of public ops, under Composed and if the
// gradient will be differentiated (create_graph).
template <class Slope>
Tensor derivative(UnaryOp op, const Tensor& dy, const Tensor& v, const Slope& slope) {
  if (grad_enabled() || composed()) return slope(dy, v);
  Tensor dx = empty_result(v.shape(), v.options(), {&v});
  kernel::unary_backward(dx, dy, v, op);
  return dx;
}

// Records an op whose df takes x, and one whose df takes y.
template <class Slope>
Tensor from_input(UnaryOp op, const Tensor& x, Slope slope) {
  return record(name_of(op), {x}, unary(op, x),
                [=, x = Saved::input(x)](const Tensor& dy) -> Grads {
                  return {derivative(op, dy, *x, slope)};
                });
}
template <class Slope>
Tensor from_output(UnaryOp op, const Tensor& x, Slope slope) {
  Tensor y = unary(op, x);
  return record(name_of(op), {x}, y, [=, y = Saved::output(y)](const Tensor& dy) -> Grads {
    return {derivative(op, dy, *y, slope)};
  });
}

// Records an op whose value y(x) and gradient dx(dy, x) are made of other ops.
template <class Y, class Dx>
Tensor recorded(const char* op, const Tensor& x, Y y, Dx dx) {
  check_defined(op, x);
  INK_CHECK(x.is_floating(), op, ": expected a floating dtype, got ", x.dtype());
  const auto value = [&] {
    const NoGrad no_grad;
    return y(x);
  };
  return record(op, {x}, value(),
                [dx, x = Saved::input(x)](const Tensor& dy) -> Grads { return {dx(dy, *x)}; });
}

}  // namespace

// ---- integers stay integers

// dx = -dy
Tensor neg(const Tensor& x) {
  return record("neg", {x}, unary(UnaryOp::neg, x),
                [](const Tensor& dy) -> Grads { return {neg(dy)}; });
}

// dx = dy sign x
Tensor abs(const Tensor& x) {
  return from_input(UnaryOp::abs, x, [](auto& dy, auto& v) { return dy * sign(v); });
}

// dx = dy where y > 0
Tensor relu(const Tensor& x) {
  return from_output(UnaryOp::relu, x,
                     [](auto& dy, auto& y) { return masked_fill(dy, y <= 0, 0); });
}

// dx = dy where min < x < max
Tensor clamp(const Tensor& input, std::optional<Scalar> min, std::optional<Scalar> max) {
  INK_CHECK(min || max, "clamp: expected a min or a max, got neither");
  const Tensor x =
      promoted("clamp", promoted("clamp", input, min.value_or(false)), max.value_or(false));
  const auto as_tensor = [&](const auto& n) {
    return n ? scalar_tensor(*n, x.options()) : Tensor();
  };
  for (const auto& bound : {min, max})
    if (bound) check_in_range("clamp", *bound, x.dtype());
  for (const auto& bound : {min, max})
    if (bound && needs_tensor(x, *bound)) return clamp(x, as_tensor(min), as_tensor(max));
  Tensor y = empty_result(x.shape(), x.options(), {&x});
  const auto is_nan = [](const std::optional<Scalar>& n) { return n && n->value != n->value; };
  if (min && max && !is_nan(min) && !is_nan(max)) {
    kernel::clamp(y, x, min->value, max->value);
  } else {  // one bound, or one that makes all NaN
    const bool low = min && !is_nan(max);
    kernel::binary_number(y, x, (low ? min : max)->value,
                          low ? BinaryOp::maximum : BinaryOp::minimum);
  }
  const auto vjp = [=, x = Saved::input(x)](const Tensor& dy) -> Grads {
    Tensor dx = dy;
    if (min) dx = masked_fill(dx, ~(*x > *min), 0);
    if (max) dx = masked_fill(dx, ~(*x < *max), 0);
    return {dx};
  };
  return shown_as("clamp.1", record("clamp", {x}, y, vjp));
}

// dx = 0
static Tensor in_steps(UnaryOp op, const Tensor& x) {
  return record(name_of(op), {x}, unary(op, x),
                [](const Tensor& dy) -> Grads { return {zeros_like(dy)}; });
}
Tensor sign(const Tensor& x) {
  return x.defined() && x.dtype() == boolean ? clone(x) : in_steps(UnaryOp::sign, x);
}
Tensor floor(const Tensor& x) { return in_steps(UnaryOp::floor, x); }
Tensor ceil(const Tensor& x) { return in_steps(UnaryOp::ceil, x); }
Tensor trunc(const Tensor& x) { return in_steps(UnaryOp::trunc, x); }
Tensor round(const Tensor& x) { return in_steps(UnaryOp::round, x); }

Tensor square(const Tensor& x) {
  check_defined("square", x);
  return pow(x, 2);
}

// ---- integers become floating

// dx = dy y
Tensor exp(const Tensor& input) {
  const Tensor x = floating("exp", input);
  Tensor y = unary(UnaryOp::exp, x);
  return record("exp", {x}, y,
                [y = Saved::output(y)](const Tensor& dy) -> Grads { return {dy * *y}; });
}

// dx = dy / x
Tensor log(const Tensor& input) {
  const Tensor x = floating("log", input);
  return record("log", {x}, unary(UnaryOp::log, x),
                [x = Saved::input(x)](const Tensor& dy) -> Grads { return {dy / *x}; });
}

// dx = dy / (1 + x)
Tensor log1p(const Tensor& x) {
  return from_input(UnaryOp::log1p, floating("log1p", x),
                    [](auto& dy, auto& v) { return dy / (v + 1); });
}

// dx = dy (y + 1)
Tensor expm1(const Tensor& x) {
  return from_output(UnaryOp::expm1, floating("expm1", x),
                     [](auto& dy, auto& y) { return dy * (y + 1); });
}

// dx = dy / (2 y)
Tensor sqrt(const Tensor& x) {
  return from_output(UnaryOp::sqrt, floating("sqrt", x),
                     [](auto& dy, auto& y) { return dy / (y * 2); });
}

// dx = -dy y^3 / 2
Tensor rsqrt(const Tensor& x) {
  return from_output(UnaryOp::rsqrt, floating("rsqrt", x),
                     [](auto& dy, auto& y) { return dy * -0.5 * pow(y, 3); });
}

// dx = dy cos x
Tensor sin(const Tensor& x) {
  return from_input(UnaryOp::sin, floating("sin", x),
                    [](auto& dy, auto& v) { return dy * cos(v); });
}

// dx = -dy sin x
Tensor cos(const Tensor& x) {
  return from_input(UnaryOp::cos, floating("cos", x),
                    [](auto& dy, auto& v) { return -dy * sin(v); });
}

// dx = dy (1 - y^2)
Tensor tanh(const Tensor& x) {
  return from_output(UnaryOp::tanh, floating("tanh", x),
                     [](auto& dy, auto& y) { return dy * (1 - y * y); });
}

// dx = dy y (1 - y)
Tensor sigmoid(const Tensor& x) {
  return from_output(UnaryOp::sigmoid, floating("sigmoid", x),
                     [](auto& dy, auto& y) { return dy * (1 - y) * y; });
}

// dx = dy s (1 + x (1 - s)), s = sigmoid x
Tensor silu(const Tensor& x) {
  return from_input(UnaryOp::silu, floating("silu", x), [](auto& dy, auto& v) {
    const Tensor s = sigmoid(v);
    return dy * s * (1 + v * (1 - s));
  });
}

// y = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
// dx = dy 2 / sqrt(pi) exp(-x^2)
Tensor erf(const Tensor& x) {
  return from_input(UnaryOp::erf, floating("erf", x),
                    [](auto& dy, auto& v) { return dy * (exp(-v * v) * 1.1283791670955126); });
}

// ---- values of other ops

// y = log(1 + exp(beta x)) / beta, and x where beta x > threshold.
// dx = dy sigmoid(beta x), and dy there
Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (x.dtype() == bf16 && beta != 1)
    return shown_as("softplus", to(softplus(to(x, f32), beta, threshold), bf16));
  const auto y = [=](const Tensor& v) {
    const Tensor z = beta == 1 ? v : v * beta, soft = value_of(BinaryOp::softplus, z, threshold);
    return beta == 1 ? soft : where(z > threshold, v, soft / beta);
  };
  return recorded("softplus", x, y, [=](const Tensor& dy, const Tensor& v) {
    const Tensor z = v * beta, smooth = where(z >= threshold, z.detach(), z);
    return where(z > threshold, dy, dy * sigmoid(smooth));
  });
}

// y = x for x > 0, else negative_slope x
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  const auto y = [=](const Tensor& v) { return value_of(BinaryOp::leaky_relu, v, negative_slope); };
  return recorded("leaky_relu", x, y, [=](const Tensor& dy, const Tensor& v) {
    return where(v > 0, dy, dy * negative_slope);
  });
}

// y = x for x > 0, else alpha (exp(x) - 1).   dx = dy, or dy alpha exp x
Tensor elu(const Tensor& x, double alpha) {
  const auto below = [](const Tensor& v) { return masked_fill(v, v >= 0, 0); };
  const auto y = [=](const Tensor& v) { return value_of(BinaryOp::elu, v, alpha); };
  return recorded("elu", x, y, [=](const Tensor& dy, const Tensor& v) {
    return where(v > 0, dy, dy * exp(below(v)) * alpha);  // NaN for NaN
  });
}

}  // namespace ink
