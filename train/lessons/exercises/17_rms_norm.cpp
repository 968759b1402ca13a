// Exercise 17: RMS norm, forward and backward
//
// Llama normalises without a mean and without a bias. Every row is divided by its root mean square,
// and its columns are scaled:
//
//   rstd = 1 / sqrt((1/C) sum x^2 + eps),    xhat = x rstd,    y = xhat weight
//
// x is (..., C), weight is (C,), and rstd is one number for each row.
//
// Backward. Given dy, return {dx, dweight}.
//   * weight is broadcast over the rows: see exercise 2.
//   * With dxhat = dy weight, the chain rule reaches x in two ways: through x itself and through
//     rstd. Layer norm has a third one, through the mean. Exercise 7 gives its formula; derive what
//     is left of it here.
//
// Useful: mean(x, {-1}, /*keepdim=*/true), rsqrt(x), square(x), sum_to(x, shape). Lesson 4 explains
// layers, lesson 2 gradients.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor rms_norm_forward(const Tensor& x, const Tensor& weight, double eps) {
  // >>> todo("rms_norm_forward");
  return x * rsqrt(mean(square(x), {-1}, /*keepdim=*/true) + eps) * weight;
  // <<<
}

Grads rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, double eps) {
  // >>> todo("rms_norm_backward");
  const Tensor rstd = rsqrt(mean(square(x), {-1}, /*keepdim=*/true) + eps);
  const Tensor xhat = x * rstd, dxhat = dy * weight;
  const Tensor dx = rstd * (dxhat - xhat * mean(dxhat * xhat, {-1}, /*keepdim=*/true));
  return {dx, sum_to(dy * xhat, weight.shape())};
  // <<<
}

INK_EXERCISE(rms_norm_exercise(rms_norm_forward, rms_norm_backward))
