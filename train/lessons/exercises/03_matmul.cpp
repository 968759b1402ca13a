// Exercise 3: the gradient of a matrix product
//
// y = a b with a (n, k) and b (k, m), so y[i][j] = sum over l of a[i][l] b[l][j].
//
// Given dy, the gradient of the loss with respect to y, return {da, db}, of the shapes of a and b.
// To find them, ask where a[i][l] is used: in all y[i][j] of its row, each time with the factor
// b[l][j]. So
//
//   da[i][l] = sum over j of dy[i][j] b[l][j]
//
// which is again a matrix product. Which one? Do the same for b. Only one product fits the shapes.
//
// There may be batches in front: (B, n, k) times (B, k, m) is B products side by side. And a may
// have batches where b, (k, m), has none: then all batches use the same b, as a linear layer does.
// What exercise 2 says about broadcasting holds for batches, too.
//
// Useful: matmul(a, b), a.transpose(-2, -1), sum_to(x, shape), b.shape(). Step 1 of lesson 2
// has such a gradient.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Grads matmul_backward(const Tensor& dy, const Tensor& a, const Tensor& b) {
  // >>> todo("matmul_backward");
  const Tensor da = matmul(dy, b.transpose(-2, -1));
  const Tensor db = matmul(a.transpose(-2, -1), dy);
  return {sum_to(da, a.shape()), sum_to(db, b.shape())};
  // <<<
}

INK_EXERCISE(matmul_exercise(matmul_backward))
