// Exercise 5: the gradient of softmax
//
// softmax turns a row of numbers into probabilities:
//
//   y[i] = exp(x[i]) / sum over j of exp(x[j])
//
// Every y[i] depends on every x[j] of its row, because they share the sum. By the quotient rule,
// y[i] has this slope with respect to x[j]:
//
//   slope[i][j] = y[i] ((i == j ? 1 : 0) - y[j])
//
// Let dy be the gradient of the loss with respect to y. Given dy and y, both (..., C) with rows
// along the last dimension, return dx, the gradient with respect to x. By the chain rule,
//
//   dx[j] = sum over i of dy[i] slope[i][j]
//
// Put the slope in, and simplify until no matrix is left: elementwise products and one sum for each
// row remain. x is not among the arguments, because y is all you need. So softmax keeps its output
// for backward, and not its input.
//
// Useful: sum(x, {-1}, /*keepdim=*/true) and + - * between tensors. Lesson 3 explains how an op is
// written, and lesson 2 shows softmax together with cross entropy.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor softmax_backward(const Tensor& dy, const Tensor& y) {
  // >>> todo("softmax_backward");
  return y * (dy - sum(dy * y, {-1}, /*keepdim=*/true));
  // <<<
}

INK_EXERCISE(softmax_exercise(softmax_backward))
