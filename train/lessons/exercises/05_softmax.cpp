// Exercise 5: the gradient of softmax
//
// softmax turns a row of numbers into probabilities:
//
//   y[i] = exp(x[i]) / sum over j of exp(x[j])
//
// Every y[i] depends on every x[j] of its row, because they share the sum. By the quotient rule,
//
//   dy[i]/dx[j] = y[i] ((i == j ? 1 : 0) - y[j])
//
// Given dy = d loss / dy and y, both (..., C) with rows along the last dimension, return
// dx = d loss / dx. By the chain rule, dx[j] is the sum over i of dy[i] dy[i]/dx[j]. Write it out,
// and simplify until no matrix is left: what remains is elementwise, and one sum for each row.
//
// x is not among the arguments, because y is all you need. So a backward keeps only its output.
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
