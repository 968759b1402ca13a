// Exercise 11: dropout, forward and backward
//
// In training, dropout sets each element to zero with probability p, so that a network cannot rely
// on a single one. In evaluation it does nothing. Elements that are kept are divided by 1 - p, so
// that the mean stays what it was, and evaluation needs no factor:
//
//   y = x kept / (1 - p)   in training,     y = x   in evaluation
//
// `kept` has x's shape, with 1 where an element is kept and 0 where not. It was drawn already,
// because then the same mask serves forward and backward, and every run gives the same numbers.
//
// Backward: given dy, return dx. An element that was dropped has no influence, so what is its
// gradient?
//
// Watch for p = 1, where nothing is kept. The result is zeros, but 0 / 0 is NaN.
//
// Step 6 of the walkthrough attention_from_scratch shows dropout in a layer.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor dropout_forward(const Tensor& x, const Tensor& kept, double p, bool training) {
  // >>> todo("dropout_forward");
  if (!training) return x;
  return p == 1 ? zeros_like(x) : x * kept / (1 - p);
  // <<<
}

Tensor dropout_backward(const Tensor& dy, const Tensor& kept, double p, bool training) {
  // >>> todo("dropout_backward");
  return dropout_forward(dy, kept, p, training);
  // <<<
}

INK_EXERCISE(dropout_exercise(dropout_forward, dropout_backward))
