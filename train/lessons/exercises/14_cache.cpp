// Exercise 14: attention with a cache
//
// A model writes one token at a time. Keys and values of earlier positions do not change, because
// nothing later has any influence on them. So they are kept, and each call brings only what is new:
//
//   struct Cache { Tensor k, v; };        // of all positions so far; undefined before the first
//
// q, k, v are (B, H, n, d): the n positions that come next. Append k and v to the cache, and return
// y (B, H, n, d), the same rows that causal attention over the whole text would give:
//
//   scores = q (all keys)^T / sqrt(d)     (..., n, S), S positions are in the cache by now
//
// The mask is the part to think about. Row i of q stands at position S - n + i, so it may look at
// keys 0 .. S - n + i. With n = 1 nothing is masked; a text that is read at once has n = S.
//
// Useful: cat({a, b}, -2), triu(ones({n, S}), diagonal), cache.k.defined(), and what exercise 9
// lists. The walkthrough padding_and_cache explains it.
#include "train/lessons/exercises/exercise.h"

#include <cmath>

using namespace ink;

Tensor attend_next(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  // >>> todo("attend_next");
  cache.k = cache.k.defined() ? cat({cache.k, k}, -2) : k;
  cache.v = cache.v.defined() ? cat({cache.v, v}, -2) : v;
  const int64_t n = q.size(-2), S = cache.k.size(-2);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor later = triu(ones({n, S}), S - n + 1) == 1;
  const Tensor scores = masked_fill(matmul(q, cache.k.transpose(-2, -1)) * scale, later, -inf);
  return matmul(softmax(scores, -1), cache.v);
  // <<<
}

INK_EXERCISE(cache_exercise(attend_next))
