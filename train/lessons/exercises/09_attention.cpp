// Exercise 9: causal attention, forward
//
// Every position has a query, a key and a value. It looks at all positions up to its own, and takes
// the average of their values. The better its query matches a key, the more that value counts:
//
//   scores  = q k^T / sqrt(d)                     (..., T, T): row i has a score for every key j
//   weights = softmax of each row, where scores of later keys (j > i) count as -inf
//   y       = weights v
//
// q and k are (B, H, T, d), v is (B, H, T, dv), and so is y: batches and heads do the same side by
// side. sqrt(d) keeps scores near 1, whatever d is. The mask hides what is not written yet.
//
// Watch for scores of 1000, where exp is infinite, and for the -inf of the mask. The library's
// softmax(x, -1) is safe for both. If you write your own, subtract the largest score of the row.
//
// Useful: matmul, k.transpose(-2, -1), triu(ones({T, T}), 1) == 1 (true above the diagonal),
// masked_fill(x, mask, -inf), softmax(x, -1). Lesson 7 and attention_from_scratch explain it.
#include "train/lessons/exercises/exercise.h"

#include <cmath>

using namespace ink;

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  // >>> todo("causal_attention");
  const int64_t T = q.size(-2);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor later = triu(ones({T, T}), 1) == 1;
  const Tensor scores = masked_fill(matmul(q, k.transpose(-2, -1)) * scale, later, -inf);
  return matmul(softmax(scores, -1), v);
  // <<<
}

INK_EXERCISE(attention_exercise(causal_attention))
