#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace cache_check {

using F = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Cache&);

// inputs: q, k, v of the whole text, and how many positions each call brings
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors {
    Cache cache;
    Tensors rows;
    int64_t start = 0;
    for (const int64_t n : in[3].tolist<int64_t>()) {
      const auto part = [&](const Tensor& x) { return x.narrow(-2, start, n); };
      rows.push_back(f(part(in[0]), part(in[1]), part(in[2]), cache));
      start += n;
    }
    return {cat(rows, -2), cache.k, cache.v};
  };
}

Tensors expected(const Tensors& in) {
  const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
  return {y, in[1], in[2]};
}

// ---- mistakes

void append(Cache& cache, const Tensor& k, const Tensor& v) {
  cache.k = cache.k.defined() ? cat({cache.k, k}, -2) : k;
  cache.v = cache.v.defined() ? cat({cache.v, v}, -2) : v;
}
Tensor attend(const Tensor& q, const Cache& cache, int64_t diagonal, bool scaled = true) {
  const double scale = scaled ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : 1;
  const Tensor later = triu(ones({q.size(-2), cache.k.size(-2)}), diagonal) == 1;
  const Tensor scores = matmul(q, cache.k.transpose(-2, -1)) * scale;
  return matmul(softmax(masked_fill(scores, later, -inf), -1), cache.v);
}
Tensor no_mask(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  append(cache, k, v);
  return attend(q, cache, cache.k.size(-2));
}
Tensor upper_left(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  append(cache, k, v);
  return attend(q, cache, 1);
}
Tensor forgets(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  cache = {k, v};
  return attend(q, cache, 1);
}
Tensor no_scale(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  append(cache, k, v);
  return attend(q, cache, cache.k.size(-2) - q.size(-2) + 1, false);
}
Tensor newest_first(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  cache.k = cache.k.defined() ? cat({k, cache.k}, -2) : k;
  cache.v = cache.v.defined() ? cat({v, cache.v}, -2) : v;
  return attend(q, cache, cache.k.size(-2) - q.size(-2) + 1);
}
Tensor hides_itself(const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
  append(cache, k, v);
  return attend(q, cache, cache.k.size(-2) - q.size(-2));
}

Case of(const std::string& name, const Tensor& parts, const Shape& shape = {1, 2, 6, 3}) {
  return {name, {noise(1, shape), noise(2, shape), noise(3, shape), parts}};
}

}  // namespace cache_check

Exercise cache_exercise(cache_check::F attend_next) {
  using namespace cache_check;
  return {
      "14_cache",
      "padding_and_cache",
      {"How many keys does row i of q see? Count with S = 5 in the cache and n = 2 new ones.",
       "Append first, with cat along -2; the first time there is nothing to append to.",
       "The mask hides keys above the diagonal S - n + 1: triu(ones({n, S}), S - n + 1) == 1."},
      {"nn/kv_cache.cpp", "std::pair<Tensor, Tensor> KVCache::append(",
       "It makes room for the whole context at once and writes into it. cat copies all that is "
       "there for every token, so that a text of T tokens costs T squared."},
      {{"attend_next",
        {"y", "cache.k", "cache.v"},
        answer(attend_next),
        expected,
        {of("one position at a time", tensor({1, 1, 1, 1, 1, 1})),
         of("four, then one at a time", tensor({4, 1, 1})), of("parts of 2 and 4", tensor({2, 4})),
         of("all at once", tensor({6})), of("a single position", tensor({1}), {1, 1, 1, 2}),
         of("batches", tensor({3, 2}), {2, 2, 5, 2})},
        {{answer(no_mask),
          "There is no mask: where several positions are new, earlier ones look ahead."},
         {answer(upper_left),
          "The mask begins at key 0. Row i stands at position S - n + i: triu(..., S - n + 1)."},
         {answer(forgets),
          "The cache holds the last call alone. New keys and values are appended."},
         {answer(no_scale), "The scores are not divided by sqrt(d)."},
         {answer(newest_first),
          "New positions go behind those in the cache: cat({cache.k, k}, -2)."},
         {answer(hides_itself),
          "The mask hides the position itself, too: one diagonal too low."}}}}};
}

}  // namespace ink
