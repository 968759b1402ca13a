#include <algorithm>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace ranks_check {

// inputs: here, from, parts (ranks, n)
using F = Tensor (*)(int64_t, const Ints&, const Tensors&);

Tensor added(const Tensors& parts, const std::vector<size_t>& order) {
  std::vector<float> total(static_cast<size_t>(parts[0].numel()));
  for (size_t k = 0; k < order.size(); ++k) {
    const std::vector<double> part = parts[order[k]].tolist();
    for (size_t i = 0; i < total.size(); ++i)
      total[i] = k == 0 ? static_cast<float>(part[i]) : total[i] + static_cast<float>(part[i]);
  }
  return from_vector(std::vector<double>(total.begin(), total.end()), parts[0].shape()).to(f32);
}
std::vector<size_t> by_rank(const Ints& from) {
  std::vector<size_t> order(from.size());
  for (size_t i = 0; i < from.size(); ++i) order[static_cast<size_t>(from[i])] = i;
  return order;
}

Tensor right(int64_t, const Ints& from, const Tensors& parts) {
  return added(parts, by_rank(from));
}
Tensor as_they_come(int64_t, const Ints& from, const Tensors& parts) {
  std::vector<size_t> order;
  for (size_t i = 0; i < from.size(); ++i) order.push_back(i);
  return added(parts, order);
}
Tensor own_first(int64_t here, const Ints& from, const Tensors& parts) {
  std::vector<size_t> order = by_rank(from);
  const auto own = order.begin() + here;
  std::rotate(order.begin(), own, own + 1);
  return added(parts, order);
}
Tensor ring(int64_t here, const Ints& from, const Tensors& parts) {
  std::vector<size_t> order = by_rank(from);
  std::rotate(order.begin(), order.begin() + here, order.end());
  return added(parts, order);
}
Tensor from_the_last(int64_t, const Ints& from, const Tensors& parts) {
  std::vector<size_t> order = by_rank(from);
  std::reverse(order.begin(), order.end());
  return added(parts, order);
}
Tensor wrong_way(int64_t, const Ints& from, const Tensors& parts) {
  return added(parts, {from.begin(), from.end()});
}
Tensor in_f64(int64_t, const Ints&, const Tensors& parts) {
  Tensor total = parts[0].to(f64);
  for (size_t i = 1; i < parts.size(); ++i) total = total + parts[i].to(f64);
  return total.to(f32);
}

// Ranks 0 .. 3 have these parts, and they arrive in the order `from`.
Case of(const std::string& name, int64_t here, const Ints& from) {
  const float large = 1e8F;
  const std::vector<std::vector<float>> of_rank = {
      {large, 1, 3, 1}, {1, large, -large, -large}, {-large, 1, large, 4}, {1, -large, 1, large}};
  std::vector<double> parts;
  for (const int64_t rank : from) {
    const std::vector<float>& part = of_rank[static_cast<size_t>(rank)];
    parts.insert(parts.end(), part.begin(), part.end());
  }
  return {name, {tensor(here), list(from), from_vector(parts, {std::ssize(from), 4}).to(f32)}};
}

}  // namespace ranks_check

Exercise ranks_exercise(ranks_check::F sum_of_ranks) {
  using namespace ranks_check;
  return {
      "24_ranks",
      "lesson 8",
      {"Which order do all ranks know, whatever arrived when?",
       "Put the parts in the order of their ranks first: from[i] says where parts[i] belongs. Then "
       "add.",
       "in_order[from[i]] = parts[i] for all i. Begin with in_order[0] and add in_order[1], "
       "in_order[2], ... one after another. `here` is not needed: every rank does the same."},
      {"autograd/engine/grad_store.cpp",
       "void GradStore::add_to_leaves(std::vector<GradStore>& stores",
       "What ranks are to you, threads are here: each has a store of gradients for its part of the "
       "batch, and they are added in the order of the parts, whichever thread was first. So the "
       "bits depend on the number of parts, and never on time."},
      {{"sum_of_ranks",
        {"sum"},
        answer(sum_of_ranks),
        answer(right),
        {of("they arrive in order, at rank 0", 0, {0, 1, 2, 3}),
         of("in another order, at rank 1", 1, {2, 0, 3, 1}),
         of("in another order, at rank 2", 2, {2, 3, 1, 0}), of("at rank 3", 3, {1, 3, 2, 0}),
         of("two ranks, at rank 1", 1, {1, 0}), of("three ranks, at rank 2", 2, {1, 2, 0}),
         of("a rank alone", 0, {0})},
        {{answer(as_they_come),
          "Parts are added as they arrived. Each run, and each rank, gets other bits."},
         {answer(own_first),
          "Each rank begins with its own part here, so that the ranks' sums differ."},
         {answer(ring),
          "Each rank begins with itself and goes round, so that the ranks' sums differ."},
         {answer(from_the_last),
          "This begins with the last rank. It is an order that all know, but another one."},
         {answer(wrong_way),
          "This takes parts[from[i]]. parts[i] came from rank from[i]: it is the inverse."},
         {answer(in_f64),
          "This adds in f64, which is more exact and still depends on the order. Add in f32, in "
          "the order of the ranks."}}}}};
}

}  // namespace ink
