// Exercise 18: SwiGLU, forward and backward
//
// The MLP of Llama has a gate. Two linear layers read x: one gives `up`, what could be passed on,
// and the other `gate`, how much of each number is:
//
//   silu(g) = g s(g),    s(g) = 1 / (1 + exp(-g))
//   y = silu(gate) up
//
// silu is gelu's relative: about 0 for negative numbers, about g for positive ones, and smooth in
// between. gate, up and y have one shape.
//
// Backward. Given dy, return {dgate, dup}. First find silu's derivative, which is best written with
// s alone: s has the slope s (1 - s).
//
// Watch for large numbers: exp(-g) is infinite where g is -1000, and then s must be 0, not NaN. In
// which of s, silu and their slopes could infinity be divided by infinity, or multiplied by 0?
//
// Useful: sigmoid(x), and + - * between tensors. Lesson 3 explains how an op is written.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor swiglu_forward(const Tensor& gate, const Tensor& up) {
  // >>> todo("swiglu_forward");
  return gate * sigmoid(gate) * up;
  // <<<
}

Grads swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  // >>> todo("swiglu_backward");
  const Tensor s = sigmoid(gate);
  return {dy * up * s * (1 + gate * (1 - s)), dy * gate * s};
  // <<<
}

INK_EXERCISE(swiglu_exercise(swiglu_forward, swiglu_backward))
