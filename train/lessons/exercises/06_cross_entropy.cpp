// Exercise 6: cross entropy, forward and backward
//
// A language model gives a row of logits for each position. The loss is -log of the probability
// that it gave to the right token, in the mean over all positions:
//
//   loss = mean over n of -log softmax(logits[n])[ids[n]]       logits (N, V), ids (N,)
//
// Forward. exp(1000) is infinite, and log(softmax(x)) is -inf where a probability rounds to 0. Both
// are avoided by writing the logarithm out:
//
//   -log softmax(x)[i] = log(sum over j of exp(x[j])) - x[i]
//   log(sum of exp(x[j])) = m + log(sum of exp(x[j] - m)),    m = the largest x[j]
//
// Backward. Return d loss / d logits (N, V). Derive it from the first of the two formulas: the
// derivative of log(sum of exp) is softmax. Do not forget the mean.
//
// Useful: amax(x, {-1}, true), sum, mean, exp, log, softmax(x, -1). gather(logits, 1,
// ids.unsqueeze(1)) is logits[n][ids[n]], as (N, 1). one_hot(ids, V) is i64; .to(logits.dtype())
// makes numbers of it. Lesson 2 derives the gradient for one row.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor cross_entropy_forward(const Tensor& logits, const Tensor& ids) {
  // >>> todo("cross_entropy_forward");
  const Tensor m = amax(logits, {-1}, /*keepdim=*/true);
  const Tensor log_sum = m + log(sum(exp(logits - m), {-1}, /*keepdim=*/true));
  return mean(log_sum - gather(logits, 1, ids.unsqueeze(1)));
  // <<<
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& ids) {
  // >>> todo("cross_entropy_backward");
  const Tensor right = one_hot(ids, logits.size(1)).to(logits.dtype());
  return (softmax(logits, -1) - right) / logits.size(0);
  // <<<
}

INK_EXERCISE(cross_entropy_exercise(cross_entropy_forward, cross_entropy_backward))
