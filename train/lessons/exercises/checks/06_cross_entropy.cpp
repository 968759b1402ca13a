#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace cross_entropy_check {

// inputs: logits, ids
using F = Tensor (*)(const Tensor&, const Tensor&);

// The definition, number by number.
Tensor loss(const Tensors& in) {
  const int64_t N = in[0].size(0), V = in[0].size(1);
  const std::vector<double> x = in[0].tolist();
  const std::vector<int64_t> ids = in[1].tolist<int64_t>();
  double total = 0;
  for (int64_t n = 0; n < N; ++n) {
    double largest = -inf, rest = 0;
    for (int64_t j = 0; j < V; ++j) largest = std::max(largest, x[n * V + j]);
    for (int64_t j = 0; j < V; ++j) rest += std::exp(x[n * V + j] - largest);
    total += largest + std::log(rest) - x[n * V + ids[n]];
  }
  return scalar(total / static_cast<double>(N));
}
Tensors expected_loss(const Tensors& in) { return {loss(in)}; }
Tensors expected_gradient(const Tensors& in) { return {difference(loss, in, 0, scalar(1))}; }

Tensor picked(const Tensor& x, const Tensor& ids) { return gather(x, 1, ids.unsqueeze(1)); }

Tensor log_p(const Tensor& x, const Tensor& ids) { return picked(log_softmax(x, -1), ids); }
// The gradient of the sum.
Tensor slopes(const Tensor& x, const Tensor& ids) {
  return softmax(x, -1) - one_hot(ids, x.size(1)).to(f64);
}

}  // namespace cross_entropy_check

Exercise cross_entropy_exercise(cross_entropy_check::F forward, cross_entropy_check::F backward) {
  using namespace cross_entropy_check;
  const Tensor three_ids = tensor({1, 0, 3}), one_id = tensor({2});
  const std::vector<Case> cases = {
      {"three rows", {noise(1, {3, 4}), three_ids}},
      {"a single row", {noise(2, {1, 4}), one_id}},
      {"large logits",
       {tensor({{1000.0, 999.0, 998.0}, {-1000.0, 3.0, 1.0}}, f64), tensor({1, 2})}},
      {"a probability that rounds to 0", {tensor({{0.0, 900.0, 0.0}}, f64), tensor({0})}},
      {"a logit of -inf", {tensor({{0.5, -inf, 1.0}}, f64), tensor({0})}},
      {"logits are not contiguous", {transposed_in_memory(noise(3, {3, 4})), three_ids}},
      {"the same token in all rows", {noise(4, {3, 4}), tensor({2, 2, 2})}}};
  return {
      "06_cross_entropy",
      "lesson 2",
      {"log(softmax(x)) loses small probabilities. Write the logarithm of the quotient as a "
       "difference first.",
       "m = amax(logits, {-1}, true), then m + log(sum(exp(logits - m), {-1}, true)) is the "
       "logarithm of the sum, (N, 1). Subtract the right logits, and take the mean.",
       "The right logits are gather(logits, -1, ids.unsqueeze(-1)). Backward: softmax, minus 1 "
       "at the right token, and all of it divided by N."},
      {"autograd/ops/cross_entropy.cpp", "Tensor cross_entropy(",
       "It writes the gradient in the same pass as the loss, into one buffer of the size of the "
       "logits, which are the largest tensor of a GPT. backward has only to scale it."},
      {{"cross_entropy_forward",
        {"loss"},
        answer(forward),
        expected_loss,
        cases,
        {{answer([](const Tensor& x, const Tensor& ids) {
            return mean(log(sum(exp(x), {-1}, true)) - picked(x, ids));
          }),
          "exp of a large logit is infinite: subtract the largest of the row first, and add it "
          "back."},
         {answer([](const Tensor& x, const Tensor& ids) {
            return -mean(log(picked(softmax(x, -1), ids)));
          }),
          "log(softmax(x)) is -inf where a probability rounds to 0: write the logarithm out."},
         {answer([](const Tensor& x, const Tensor& ids) { return -sum(log_p(x, ids)); }),
          "This is the sum over the rows. The loss is their mean."},
         {answer([](const Tensor& x, const Tensor& ids) { return mean(log_p(x, ids)); }),
          "The sign is wrong: the loss is -log p, which is never negative."},
         {answer(
              [](const Tensor& x, const Tensor& ids) { return -sum(log_p(x, ids)) / x.numel(); }),
          "This divides by N V. There are N losses, one for each row."}}},
       {"cross_entropy_backward",
        {"dlogits"},
        answer(backward),
        expected_gradient,
        cases,
        {{answer(slopes), "The mean is missing: the loss divides by N, and so does its gradient."},
         {answer([](const Tensor& x) { return softmax(x, -1) / x.size(0); }),
          "The right logit has a term of its own, -x[i], whose derivative -1 is missing."},
         {answer([](const Tensor& x, const Tensor& ids) { return -slopes(x, ids) / x.size(0); }),
          "The sign is wrong: a higher right logit makes the loss lower."},
         {answer([](const Tensor& x, const Tensor& ids) { return slopes(x, ids) / x.numel(); }),
          "This divides by N V. The mean is over N rows."}}}}};
}

}  // namespace ink
