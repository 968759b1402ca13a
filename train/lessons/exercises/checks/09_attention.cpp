#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace attention_check {

using F = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);

// inputs: q, k, v
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[0], in[1], in[2])}; };
}

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

Tensor dots(const Tensor& q, const Tensor& k) { return matmul(q, k.transpose(-2, -1)); }
double scale(const Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }
Tensor above(int64_t T, int64_t diagonal) { return triu(ones({T, T}), diagonal) == 1; }
Tensor masked(const Tensor& scores, int64_t diagonal, double value) {
  return masked_fill(scores, above(scores.size(-1), diagonal), value);
}

Tensor no_mask(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(softmax(dots(q, k) * scale(q), -1), v);
}
Tensor no_scale(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(softmax(masked(dots(q, k), 1, -inf), -1), v);
}
Tensor by_d(const Tensor& q, const Tensor& k, const Tensor& v) {
  const double d = static_cast<double>(q.size(-1));
  return matmul(softmax(masked(dots(q, k) / d, 1, -inf), -1), v);
}
Tensor zeros_for_mask(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(softmax(masked(dots(q, k) * scale(q), 1, 0), -1), v);
}
Tensor hides_itself(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(softmax(masked(dots(q, k) * scale(q), 0, -inf), -1), v);
}
Tensor hides_the_past(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores = dots(q, k) * scale(q);
  return matmul(softmax(masked_fill(scores, above(q.size(-2), 1).transpose(-2, -1), -inf), -1), v);
}
Tensor tril_for_triu(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t T = q.size(-2);
  const Tensor scores = dots(q, k) * scale(q);
  return matmul(softmax(masked_fill(scores, tril(ones({T, T}), 1) == 1, -inf), -1), v);
}
Tensor by_queries(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(softmax(masked(dots(q, k) * scale(q), 1, -inf), -2), v);
}
Tensor masked_afterwards(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(masked(softmax(dots(q, k) * scale(q), -1), 1, 0), v);
}
Tensor overflows(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor e = exp(masked(dots(q, k) * scale(q), 1, -inf));
  return matmul(e / sum(e, {-1}, true), v);
}

}  // namespace attention_check

Exercise attention_exercise(attention_check::F attention) {
  using namespace attention_check;
  const Shape shape = {1, 2, 4, 3};
  const auto of = [](const std::string& name, const Shape& s) {
    return Case{name, {noise(1, s), noise(2, s), noise(3, s)}};
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
         {"values wider than keys", {noise(1, shape), noise(2, shape), noise(3, {1, 2, 4, 5})}},
         {"large scores", {100 * noise(1, shape), 100 * noise(2, shape), noise(3, shape)}},
         {"heads split by a transpose",
          {noise(1, {1, 4, 2, 3}).transpose(1, 2), noise(2, {1, 4, 2, 3}).transpose(1, 2),
           noise(3, {1, 4, 2, 3}).transpose(1, 2)}}},
        {{answer(no_mask), "There is no mask: positions look at what comes after them."},
         {answer(no_scale), "The scores are not divided by sqrt(d)."},
         {answer(by_d), "The scores are divided by d. It is sqrt(d)."},
         {answer(zeros_for_mask),
          "The mask sets scores to 0, which is a score like any other: exp(0) = 1. Set them to "
          "-inf."},
         {answer(hides_itself),
          "The mask hides the position itself, too. The first one then sees nothing: triu(..., "
          "1)."},
         {answer(hides_the_past), "The mask is the wrong way round: it hides earlier positions."},
         {answer(tril_for_triu),
          "tril is the lower triangle, so the mask hides the past. triu(..., 1) is what comes "
          "later."},
         {answer(by_queries),
          "softmax runs along the queries, -2. The weights of a query sum to 1: -1."},
         {answer(masked_afterwards),
          "Weights are masked after softmax, so they no longer sum to 1. Mask the scores."},
         {answer(overflows),
          "exp of a large score is infinite. Subtract the largest score of the row first."}}}}};
}

}  // namespace ink
