// Exercise 20: top-p, or nucleus sampling
//
// A model gives each of V tokens a probability. Most of them are tiny, but there are thousands of
// those, and together they are drawn often enough to spoil a text. So only the nucleus is drawn
// from: the fewest likeliest tokens whose probabilities sum to top_p or more. It is small where the
// model is sure, and large where it is not; a fixed number of tokens (top-k) cannot be both.
//
// p is (B, V), and every row sums to 1. Return q (B, V): 0 outside of the nucleus, and inside of it
// the probabilities p divided by their sum, so that the row sums to 1 again.
//
//   * The token with which the sum reaches top_p belongs to the nucleus.
//   * The likeliest token belongs to it always, however small top_p is.
//   * All probabilities of a row differ.
//
// Useful: sort(p, -1, /*descending=*/true) gives {sorted, ids}; cumsum(x, -1); where(condition, a,
// b), with conditions such as a < b; scatter(x, -1, ids, values) puts values back where the ids
// say; sum(x, {-1}, true). p.tolist() and loops do, too.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor nucleus(const Tensor& p, double top_p) {
  // >>> todo("nucleus");
  const auto [sorted, ids] = sort(p, -1, /*descending=*/true);
  const Tensor before = cumsum(sorted, -1) - sorted;  // what the likelier ones sum to
  const Tensor first = arange(p.size(-1)) == 0;
  const Tensor kept = where(first, sorted, where(before < top_p, sorted, zeros_like(sorted)));
  return scatter(p, -1, ids, kept / sum(kept, {-1}, true));
  // <<<
}

INK_EXERCISE(top_p_exercise(nucleus))
