// Exercise 2: the gradient of broadcasting
//
// In x + b with x (N, C) and b (C,), one number of b is added to N numbers of x. It takes part in N
// sums, so its gradient is the sum of N gradients. The same holds for any op that broadcasts: where
// an element is used several times, the gradients of all its uses are added.
//
// Write sum_to_shape. dy is the gradient of the broadcast tensor, and `shape` is that of x before
// it was broadcast. Return the gradient of x, of that shape.
//
// Shapes are aligned at their last dimension. So x differs from dy in two ways:
//   * dimensions in front may be missing:  (3, 4) from (4,)
//   * a dimension may have size 1:         (3, 4) from (3, 1). It stays, with size 1
//
// Useful: sum(x, {dim}), sum(x, {dim}, /*keepdim=*/true), x.dim(), x.size(dim), shape.size().
// Lesson 1 explains broadcasting, lesson 2 gradients that add up. (The library calls it sum_to.)
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor sum_to_shape(const Tensor& dy, const Shape& shape) {
  // >>> todo("sum_to_shape");
  Tensor dx = dy;
  while (dx.dim() > shape.size()) dx = sum(dx, {0});
  for (int64_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) dx = sum(dx, {d}, /*keepdim=*/true);
  return dx;
  // <<<
}

INK_EXERCISE(broadcasting_exercise(sum_to_shape))
