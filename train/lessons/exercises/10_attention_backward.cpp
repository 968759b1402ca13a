// Exercise 10: causal attention, backward
//
// The forward of exercise 9 is three steps, each of which you can differentiate by now:
//
//   S = q k^T / sqrt(d)                 two products: exercise 3
//   P = softmax(S, masked)              exercise 5
//   y = P v                             exercise 3
//
// Given dy (B, H, T, dv), return {dq, dk, dv}. Go from the end to the beginning:
//
//   y = P v       gives dv and dP
//   P             gives dS from dP and P; where the mask is, P is 0, and so is dS
//   S             gives dq and dk from dS. The factor 1 / sqrt(d) belongs to both
//
// Compute P again from q and k. (The library does so, too, because P has T T numbers for each head:
// to keep it would take more memory than all the rest.) The commonest slip here is a product with P
// in the place of P^T. P and dS are square, so no shape gives it away.
//
// Useful: what exercise 9 lists, and sum(x, {-1}, /*keepdim=*/true). Lesson 7 explains attention.
#include "train/lessons/exercises/exercise.h"

#include <cmath>

using namespace ink;

Grads attention_backward(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  // >>> todo("attention_backward");
  const int64_t T = q.size(-2);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor later = triu(ones({T, T}), 1) == 1;
  const Tensor S = masked_fill(matmul(q, k.transpose(-2, -1)) * scale, later, -inf);
  const Tensor P = softmax(S, -1);

  const Tensor dv = matmul(P.transpose(-2, -1), dy);
  const Tensor dP = matmul(dy, v.transpose(-2, -1));
  const Tensor dS = P * (dP - sum(dP * P, {-1}, /*keepdim=*/true));
  return {matmul(dS, k) * scale, matmul(dS.transpose(-2, -1), q) * scale, dv};
  // <<<
}

INK_EXERCISE(attention_backward_exercise(attention_backward))
