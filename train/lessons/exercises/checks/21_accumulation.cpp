#include <algorithm>
#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace accumulation_check {

using F = std::function<Tensor(const Tensors&, const Tensors&)>;

// inputs: two micro-batches' logits, then their targets. outputs: the loss, and what arrived
Answer arrived(const F& f) {
  return [f](const Tensors& in) -> Tensors {
    Tensors logits;
    for (const size_t i : {0, 1}) {
      logits.push_back(in[i].detach().clone());
      logits.back().requires_grad_();
    }
    Tensors result = {f(logits, {in[2], in[3]})};
    for (const Tensor& x : logits)
      result.push_back(x.grad().defined() ? x.grad() : zeros_like(x.detach()));
    return result;
  };
}

// Sums of -log p, and how many targets count, written out.
struct Sums {
  double loss = 0, count = 0;
};
Sums sums_of(const Tensor& logits, const Tensor& targets) {
  Sums sums;
  const std::vector<int64_t> ids = targets.tolist<int64_t>();
  for (size_t row = 0; row < ids.size(); ++row) {
    if (ids[row] == -100) continue;
    const std::vector<double> x = logits.select(0, static_cast<int64_t>(row)).tolist();
    double total = 0;
    for (const double value : x) total += std::exp(value);
    sums.loss += std::log(total) - x[static_cast<size_t>(ids[row])];
    ++sums.count;
  }
  return sums;
}
Tensor whole_loss(const Tensors& in) {
  const Sums a = sums_of(in[0], in[2]), b = sums_of(in[1], in[3]);
  return scalar((a.loss + b.loss) / std::max(a.count + b.count, 1.0));
}
Tensors expected(const Tensors& in) {
  return {whole_loss(in), difference(whole_loss, in, 0, scalar(1)),
          difference(whole_loss, in, 1, scalar(1))};
}

// ---- mistakes

double counted(const Tensor& targets) { return sum(targets != -100).to(f64).item(); }
double counted(const Tensors& targets) { return counted(targets[0]) + counted(targets[1]); }
double counted_here(const Tensor& here, const Tensors&) { return counted(here); }
double counted_in_all(const Tensor&, const Tensors& all) { return counted(all); }

// What each micro-batch's sum is divided by, given its targets and all.
using Divisor = double (*)(const Tensor& here, const Tensors& all);
Answer dividing(Divisor divisor, bool returns_the_last = false) {
  return arrived([=](const Tensors& logits, const Tensors& targets) {
    Tensor total = zeros({}, f64), loss;
    for (size_t i = 0; i < logits.size(); ++i) {
      loss = cross_entropy(logits[i], targets[i], -100, Reduction::sum) /
             std::max(divisor(targets[i], targets), 1.0);
      loss.backward();
      total = total + loss.detach();
    }
    return returns_the_last ? loss.detach() : total;
  });
}

Case of(const std::string& name, const Tensor& a, const Tensor& b) {
  return {name, {noise(1, {a.size(0), 4}), noise(2, {b.size(0), 4}), a, b}};
}

}  // namespace accumulation_check

Exercise accumulation_exercise(Tensor (*accumulated_loss)(const Tensors&, const Tensors&)) {
  using namespace accumulation_check;
  return {
      "21_accumulation",
      "lesson 5",
      {"What must each micro-batch's sum be divided by, so that the quotients add up to the loss "
       "of the whole batch? Can you know it before you have seen the last micro-batch?",
       "It is the number of targets that count in the whole batch. So two loops: one counts, the "
       "other runs forward and backward.",
       "loss = cross_entropy(logits[i], targets[i], -100, Reduction::sum) / count, then "
       "loss.backward(), and add loss.detach() to the total. Let count be at least 1."},
      {"train/trainer.cpp", "Tensor Trainer::share_of_a_target(",
       "The trainer does the same, on the device: the number never comes to the CPU, which would "
       "have to wait for it. backward begins with 1 / count instead of 1, so that nothing is "
       "divided."},
      {{"accumulated_loss",
        {"loss", "dlogits[0]", "dlogits[1]"},
        arrived(accumulated_loss),
        expected,
        {of("all targets count", tensor({3, 0}), tensor({1, 2})),
         of("micro-batches of 3 and 1 rows", tensor({3, 0, 1}), tensor({2})),
         of("three of six count", tensor({3, -100, 1}), tensor({-100, -100, 0})),
         of("nothing counts in one of them", tensor({-100, -100}), tensor({1, 2})),
         of("nothing counts at all", tensor({-100}), tensor({-100, -100}))},
        {{dividing(
              [](const Tensor& here, const Tensors&) { return 2 * std::max(counted(here), 1.0); }),
          "This is the mean of the micro-batches' means. Those with few targets count too much."},
         {dividing(counted_here),
          "Each micro-batch is divided by its own count, and the means are added: the gradients "
          "grow with the number of micro-batches."},
         {dividing([](const Tensor&, const Tensors&) { return 1.0; }),
          "This is a sum over targets. Divide it by how many count."},
         {dividing([](const Tensor&, const Tensors& all) {
            return static_cast<double>(all[0].numel() + all[1].numel());
          }),
          "This divides by all targets. Those of -100 do not count."},
         {dividing([](const Tensor&, const Tensors& all) { return 2 * counted(all); }),
          "This divides by the number of micro-batches, too. Their parts of a mean are added."},
         {dividing(counted_in_all, true),
          "The gradients are right. The loss is that of the last micro-batch: add them up."}}}}};
}

}  // namespace ink
