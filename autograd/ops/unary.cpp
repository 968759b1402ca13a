// Elementwise ops of one tensor. The formulas are in loops/pointwise.h.
//
// All are basic ops: their vjps can be differentiated again. An ordinary walk, which nobody
// differentiates, takes the formula's df instead, in one pass over memory.
#include <optional>

#include "autograd/basic_ops.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/map.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

namespace cpu {

void unary(Array& y, const Array& x, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    for_domain<F>(name_of(op), x.dtype(), [&]<class T>(T) {
      using C = compute_t<T>;
      map(
          y, [](T v) { return static_cast<T>(F::f(static_cast<C>(v))); }, x);
    });
  });
}

void unary_backward(Array& dx, const Array& dy, const Array& v, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    if constexpr (requires { F::df(1.0f, 1.0f); }) {
      for_float(name_of(op), v.dtype(), [&]<class T>(T) {
        using C = compute_t<T>;
        map(
            dx,
            [](T g, T at) { return static_cast<T>(F::df(static_cast<C>(g), static_cast<C>(at))); },
            dy, v);
      });
    } else {
      detail::fail({name_of(op), ": its formula has no df"});
    }
  });
}

}  // namespace cpu

namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  check_defined(name_of(op), x);
  Tensor y = empty_like(x);
  kernel::unary(y, x, op);
  return y;
}

// dy f'(v) in one pass, by df; or slope(dy, v), made of public ops, when the gradient is to be
// differentiated itself (create_graph) and under Composed.
template <class Slope>
Tensor derivative(UnaryOp op, const Tensor& dy, const Tensor& v, const Slope& slope) {
  if (grad_enabled() || composed()) return slope(dy, v);
  Tensor dx = empty_like(v);
  kernel::unary_backward(dx, dy, v, op);
  return dx;
}

// An op whose df takes x, and one whose df takes y.
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

// dx = 0
Tensor sign(const Tensor& x) {
  return record("sign", {x}, unary(UnaryOp::sign, x),
                [](const Tensor& dy) -> Grads { return {zeros_like(dy)}; });
}

// dx = dy where y > 0
Tensor relu(const Tensor& x) {
  return from_output(UnaryOp::relu, x,
                     [](auto& dy, auto& y) { return masked_fill(dy, y <= 0, 0); });
}

// dx = dy where min <= x <= max
Tensor clamp(const Tensor& input, std::optional<double> min, std::optional<double> max) {
  INK_CHECK(min || max, "clamp: expected a min or a max, got neither");
  const Tensor x = promoted("clamp", promoted("clamp", input, min.value_or(0)), max.value_or(0));
  Tensor y = empty_like(x);
  if (min) kernel::binary_number(y, x, *min, BinaryOp::maximum);
  if (max) kernel::binary_number(y, min ? y : x, *max, BinaryOp::minimum);
  return record("clamp", {x}, y, [=, x = Saved::input(x)](const Tensor& dy) -> Grads {
    Tensor dx = dy;
    if (min) dx = masked_fill(dx, logical_not(*x >= *min), 0);
    if (max) dx = masked_fill(dx, logical_not(*x <= *max), 0);
    return {dx};
  });
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

}  // namespace ink
