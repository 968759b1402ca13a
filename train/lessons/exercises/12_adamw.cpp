// Exercise 12: a step of AdamW
//
// AdamW keeps two running means for every parameter p: m of the gradient g, and v of its square. It
// moves p by m in units of sqrt(v), so that all parameters move at about the same speed, lr:
//
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// t counts steps from 1. m and v begin at 0, so at first they are too small: after one step m is
// (1 - beta1) g. The divisors 1 - beta^t correct that.
//
// The decay pulls p towards 0. It acts on p itself and not through g: that is the W of AdamW,
// because a decay added to g would be divided by sqrt(v), too.
//
// Tensors is std::vector<Tensor>. p_m_v holds p, m and v before the step: p_m_v[0] is p. Return
// {p, m, v} after it, as new tensors.
// struct AdamSettings { double lr, beta1, beta2, eps, weight_decay; };
//
// Useful: square, sqrt, std::pow(s.beta1, t). Lesson 5 explains what a step is.
#include "train/lessons/exercises/exercise.h"

#include <cmath>

using namespace ink;

Tensors adamw_step(const Tensors& p_m_v, const Tensor& g, int64_t t, const AdamSettings& s) {
  // >>> todo("adamw_step");
  const Tensor m = p_m_v[1] * s.beta1 + g * (1 - s.beta1);
  const Tensor v = p_m_v[2] * s.beta2 + square(g) * (1 - s.beta2);
  const Tensor mean = m / (1 - std::pow(s.beta1, t));
  const Tensor mean_square = v / (1 - std::pow(s.beta2, t));
  const Tensor p =
      p_m_v[0] * (1 - s.lr * s.weight_decay) - s.lr * mean / (sqrt(mean_square) + s.eps);
  return {p, m, v};
  // <<<
}

INK_EXERCISE(adamw_exercise(adamw_step))
