// Exercise 7: layer norm, forward and backward
//
// Layer norm gives every row the mean 0 and the variance 1, then scales and shifts its columns:
//
//   mean = (1/C) sum x,    var = (1/C) sum (x - mean)^2,    rstd = 1 / sqrt(var + eps)
//   xhat = (x - mean) rstd,    y = xhat weight + bias
//
// x is (..., C), weight and bias are (C,). mean, var and rstd are one number for each row. eps
// keeps rstd finite where all numbers of a row are equal.
//
// Backward. Given dy, return {dx, dweight, dbias}.
//   * weight and bias are broadcast over the rows: see exercise 2.
//   * With dxhat = dy weight, the chain rule reaches x in three ways: through x itself, through the
//     mean and through the variance. The sum of the three is
//
//       dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat))
//
//     with means over the row. Derive it once on paper: it is the hardest of these gradients.
//
// Useful: mean(x, {-1}, /*keepdim=*/true), rsqrt(x), square(x), sum_to(x, shape). Lesson 4 explains
// layers, lesson 2 gradients.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  // >>> todo("layer_norm_forward");
  const Tensor centred = x - mean(x, {-1}, /*keepdim=*/true);
  const Tensor rstd = rsqrt(mean(square(centred), {-1}, /*keepdim=*/true) + eps);
  return centred * rstd * weight + bias;
  // <<<
}

Grads layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, double eps) {
  // >>> todo("layer_norm_backward");
  const Tensor centred = x - mean(x, {-1}, /*keepdim=*/true);
  const Tensor rstd = rsqrt(mean(square(centred), {-1}, /*keepdim=*/true) + eps);
  const Tensor xhat = centred * rstd, dxhat = dy * weight;
  const Tensor dx = rstd * (dxhat - mean(dxhat, {-1}, /*keepdim=*/true) -
                            xhat * mean(dxhat * xhat, {-1}, /*keepdim=*/true));
  return {dx, sum_to(dy * xhat, weight.shape()), sum_to(dy, weight.shape())};
  // <<<
}

INK_EXERCISE(layer_norm_exercise(layer_norm_forward, layer_norm_backward))
