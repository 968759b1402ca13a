#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace cache_check {

using F = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, Cache&)>;

// inputs: q, k, v of the whole text, and how many positions each call brings
Answer attended(const F& f) {
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

struct How {
  int64_t diagonal = 1;
  bool from_the_end = true, scales = true, remembers = true, newest_last = true;
};
Answer by(const How& how) {
  return attended([how](const Tensor& q, const Tensor& k, const Tensor& v, Cache& cache) {
    const auto append = [how](Tensor& old, const Tensor& fresh) {
      old = !old.defined() || !how.remembers ? fresh
            : how.newest_last                ? cat({old, fresh}, -2)
                                             : cat({fresh, old}, -2);
    };
    append(cache.k, k), append(cache.v, v);
    const int64_t S = cache.k.size(-2), n = q.size(-2);
    const Tensor hidden = triu(ones({n, S}), how.diagonal + (how.from_the_end ? S - n : 0)) == 1;
    const double scale = how.scales ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : 1;
    const Tensor scores = matmul(q, cache.k.transpose(-2, -1)) * scale;
    return matmul(softmax(masked_fill(scores, hidden, -inf), -1), cache.v);
  });
}

Case of(const std::string& name, const Tensor& parts, const Shape& shape = {1, 2, 6, 3}) {
  return {name, {noise(1, shape), noise(2, shape), noise(3, shape), parts}};
}

}  // namespace cache_check

Exercise cache_exercise(Tensor (*attend_next)(const Tensor&, const Tensor&, const Tensor&,
                                              Cache&)) {
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
        attended(attend_next),
        expected,
        {of("one position at a time", tensor({1, 1, 1, 1, 1, 1})),
         of("four, then one at a time", tensor({4, 1, 1})), of("parts of 2 and 4", tensor({2, 4})),
         of("all at once", tensor({6})), of("a single position", tensor({1}), {1, 1, 1, 2}),
         of("batches", tensor({3, 2}), {2, 2, 5, 2})},
        {{by({.diagonal = 100}),
          "There is no mask: where several positions are new, earlier ones look ahead."},
         {by({.from_the_end = false}),
          "The mask begins at key 0. Row i stands at position S - n + i: triu(..., S - n + 1)."},
         {by({.remembers = false}),
          "The cache holds the last call alone. New keys and values are appended."},
         {by({.scales = false}), "The scores are not divided by sqrt(d)."},
         {by({.newest_last = false}),
          "New positions go behind those in the cache: cat({cache.k, k}, -2)."},
         {by({.diagonal = 0}),
          "The mask hides the position itself, too: one diagonal too low."}}}}};
}

}  // namespace ink
