#include <algorithm>
#include <numeric>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace top_p_check {

using F = Tensor (*)(const Tensor&, double);

// inputs: p, top_p
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[0], in[1].item())}; };
}

struct How {
  bool keeps_last = true, keeps_first = true, sorts = true, normalises = true, descends = true;
  bool by_threshold = false;
};
Answer by(const How& how) {
  return [how](const Tensors& in) -> Tensors {
    const double top_p = in[1].item();
    std::vector<double> q;
    for (int64_t row = 0; row < in[0].size(0); ++row) {
      const std::vector<double> p = in[0].select(0, row).tolist();
      std::vector<size_t> order(p.size());
      std::iota(order.begin(), order.end(), size_t{0});
      if (how.sorts)
        std::sort(order.begin(), order.end(),
                  [&](size_t a, size_t b) { return how.descends ? p[a] > p[b] : p[a] < p[b]; });
      std::vector<double> kept(p.size());
      double before = 0, total = 0;
      for (const size_t i : order) {
        const bool fits = how.by_threshold ? p[i] >= 1 - top_p
                                           : (how.keeps_last ? before : before + p[i]) < top_p;
        if (fits || (how.keeps_first && i == order[0])) total += kept[i] = p[i];
        before += p[i];
      }
      for (const double x : kept) q.push_back(how.normalises ? x / total : x);  // 0 / 0 is nan
    }
    return {from_vector(q, in[0].shape())};
  };
}

Case of(const std::string& name, const Tensor& p, double top_p) {
  return {name, {p, scalar(top_p)}};
}

}  // namespace top_p_check

Exercise top_p_exercise(top_p_check::F nucleus) {
  using namespace top_p_check;
  const Tensor p = tensor({{0.05, 0.4, 0.1, 0.3, 0.15}}, f64);
  const Tensor two = tensor({{0.05, 0.4, 0.1, 0.3, 0.15}, {0.9, 0.01, 0.02, 0.03, 0.04}}, f64);
  return {
      "20_top_p",
      "lesson 7",
      {"Put the probabilities of a row in order first. Then the question for each token is: how "
       "much do those sum to that are likelier than it?",
       "A token belongs to the nucleus if those before it sum to less than top_p. So look at the "
       "sum without the token itself: cumsum(sorted, -1) - sorted.",
       "where(before < top_p, sorted, zeros_like(sorted)), and the first one always. Divide by "
       "their sum, then scatter(p, -1, ids, ...) puts them back to their places."},
      {"nn/language_model.cpp", "Tensor only_nucleus(",
       "It works on scores, before softmax, and sets those outside to -inf: softmax then "
       "normalises by itself, and temperature, top-k and top-p can follow each other."},
      {{"nucleus",
        {"q"},
        answer(nucleus),
        by({}),
        {of("the sum is reached with the third", p, 0.8), of("one token is enough", p, 0.35),
         of("all but one", p, 0.9), of("top_p = 0", p, 0), of("top_p = 1", p, 1),
         of("a sure row and an unsure one", two, 0.75),
         of("not contiguous", transposed_in_memory(two), 0.5),
         of("a vocabulary of one", ones({2, 1}, f64), 0.5)},
        {{by({.keeps_last = false}),
          "The token with which the sum reaches top_p is missing. It belongs to the nucleus."},
         {by({.keeps_last = false, .keeps_first = false}),
          "The token with which the sum reaches top_p is missing, also where it is the likeliest."},
         {by({.keeps_first = false}),
          "A small top_p leaves nothing here. The likeliest token belongs to it always."},
         {by({.sorts = false}),
          "Tokens are taken in the order of their ids. Take the likeliest first."},
         {by({.descends = false}), "This keeps the least likely tokens. Sort them descending."},
         {by({.normalises = false}), "What is left is not divided by its sum."},
         {by({.by_threshold = true}),
          "This keeps what is likelier than 1 - top_p. It is the sum that is compared."}}}}};
}

}  // namespace ink
