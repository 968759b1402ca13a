// Exercise 4: the gradient of an embedding
//
// An embedding is a table with one row for each token: weight (rows, C). The forward copies rows:
//
//   y[i] = weight[ids[i]]        ids (N,) -> y (N, C)
//
// Given dy (N, C), return dweight (rows, C). A token that stands in the text three times has used
// its row three times. A token that does not stand there has not used its row: what is its
// gradient?
//
// ids hold i64 numbers and may have more dimensions, such as (B, T). dy then has (B, T, C).
//
// Useful: ids.reshape({-1}), ids.tolist<int64_t>(), zeros({rows, C}), and rows of a tensor as
// dy.select(0, i). A view is written in place: dweight.select(0, id).add_(row). Lesson 1 explains
// views, lesson 6 embeddings.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor embedding_backward(const Tensor& dy, const Tensor& ids, int64_t rows) {
  // >>> todo("embedding_backward");
  const int64_t C = dy.size(-1);
  const Tensor dy_rows = dy.reshape({ids.numel(), C});
  const Tensor dweight = zeros({rows, C});
  int64_t i = 0;
  for (const int64_t id : ids.reshape({-1}).tolist<int64_t>())
    dweight.select(0, id).add_(dy_rows.select(0, i++));
  return dweight;
  // <<<
}

INK_EXERCISE(embedding_exercise(embedding_backward))
