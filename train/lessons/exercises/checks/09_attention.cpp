#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace attention_check {

// inputs: q, k, v
using F = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);

// The definition, position by position.
Tensor row(const Tensor& q, const Tensor& k, const Tensor& v, int64_t i) {
  Tensors scores;
  for (int64_t j = 0; j <= i; ++j)
    scores.push_back(sum(q.select(-2, i) * k.select(-2, j), {-1}, true));
  const Tensor s = cat(scores, -1) / std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor e = exp(s - amax(s, {-1}, true)), p = e / sum(e, {-1}, true);
  Tensor y = zeros_like(v.select(-2, 0));
  for (int64_t j = 0; j <= i; ++j) y = y + p.narrow(-1, j, 1) * v.select(-2, j);
  return y;
}
Tensors expected(const Tensors& in) {
  Tensors rows;
  for (int64_t i = 0; i < in[0].size(-2); ++i) rows.push_back(row(in[0], in[1], in[2], i));
  return {stack(rows, -2)};
}

// ---- mistakes

struct How {
  double power = -0.5;   // of d, by which scores are multiplied
  double masked = -inf;  // a score that is hidden
  int64_t diagonal = 1, dim = -1;
  bool lower = false, masks_scores = true, subtracts = true;
};
Answer by(const How& how) {
  return answer([how](const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor all = ones({q.size(-2), q.size(-2)});
    const Tensor hidden = (how.lower ? tril(all, how.diagonal) : triu(all, how.diagonal)) == 1;
    const Tensor scores =
        matmul(q, k.transpose(-2, -1)) * std::pow(static_cast<double>(q.size(-1)), how.power);
    if (!how.masks_scores) return matmul(masked_fill(softmax(scores, -1), hidden, 0), v);
    const Tensor s = masked_fill(scores, hidden, how.masked), e = exp(s);
    return matmul(how.subtracts ? softmax(s, how.dim) : e / sum(e, {-1}, true), v);
  });
}

}  // namespace attention_check

Exercise attention_exercise(attention_check::F attention) {
  using namespace attention_check;
  const Shape shape = {1, 2, 4, 3};
  const auto of = [](const std::string& name, const Shape& s) {
    return noise_case(name, {s, s, s});
  };
  return {
      "09_attention",
      "lesson 7",
      {"Four steps: a product, a mask, a softmax, a product. What are the shapes in between?",
       "scores = matmul(q, k.transpose(-2, -1)) / sqrt(d), which is (B, H, T, T). masked_fill "
       "puts -inf where triu(ones({T, T}), 1) == 1.",
       "Then matmul(softmax(scores, -1), v). d is q.size(-1), as a double in the square root."},
      {"autograd/ops/attention/attention.cpp", "Tensor attention_composed(",
       "This is the definition, as yours. What runs goes over tiles that fit into the cache and "
       "keeps one number for each row, so that memory grows with T and not with T squared."},
      {{"causal_attention",
        {"y"},
        answer(attention),
        expected,
        {of("two heads", shape),
         of("a single position", {1, 1, 1, 3}),
         of("batches", {2, 2, 3, 2}),
         noise_case("values wider than keys", {shape, shape, {1, 2, 4, 5}}),
         {"large scores", {100 * noise(1, shape), 100 * noise(2, shape), noise(3, shape)}},
         {"heads split by a transpose",
          {noise(1, {1, 4, 2, 3}).transpose(1, 2), noise(2, {1, 4, 2, 3}).transpose(1, 2),
           noise(3, {1, 4, 2, 3}).transpose(1, 2)}}},
        {{by({.diagonal = 100}), "There is no mask: positions look at what comes after them."},
         {by({.power = 0}), "The scores are not divided by sqrt(d)."},
         {by({.power = -1}), "The scores are divided by d. It is sqrt(d)."},
         {by({.masked = 0}),
          "The mask sets scores to 0, which is a score like any other: exp(0) = 1. Set them to "
          "-inf."},
         {by({.diagonal = 0}),
          "The mask hides the position itself, too. The first one then sees nothing: triu(..., "
          "1)."},
         {by({.diagonal = -1, .lower = true}),
          "The mask is the wrong way round: it hides earlier positions."},
         {by({.lower = true}),
          "tril is the lower triangle, so the mask hides the past. triu(..., 1) is what comes "
          "later."},
         {by({.dim = -2}),
          "softmax runs along the queries, -2. The weights of a query sum to 1: -1."},
         {by({.masks_scores = false}),
          "Weights are masked after softmax, so they no longer sum to 1. Mask the scores."},
         {by({.subtracts = false}),
          "exp of a large score is infinite. Subtract the largest score of the row first."}}}}};
}

}  // namespace ink
