#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace swiglu_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&);

// inputs: dy, gate, up

// Element by element.
Tensor right(const Tensor& gate, const Tensor& up) {
  std::vector<double> y = gate.tolist();
  const std::vector<double> u = up.tolist();
  for (size_t i = 0; i < y.size(); ++i) y[i] = u[i] * y[i] / (1 + std::exp(-y[i]));
  return from_vector(y, gate.shape());
}

Tensor infinite(const Tensor& gate, const Tensor& up) {
  const Tensor e = exp(gate);
  return gate * e / (1 + e) * up;
}

// The slope of silu is wrong.
Answer sloped(Tensor (*slope)(const Tensor& g, const Tensor& s)) {
  return answer([slope](const Tensor& dy, const Tensor& gate, const Tensor& up) -> Grads {
    return {dy * up * slope(gate, sigmoid(gate)), dy * gate * sigmoid(gate)};
  });
}
Tensor slope_of(const Tensor& gate) {
  const Tensor s = sigmoid(gate);
  return s * (1 + gate * (1 - s));
}
Grads no_up_in_dgate(const Tensor& dy, const Tensor& gate, const Tensor&) {
  return {dy * slope_of(gate), dy * gate * sigmoid(gate)};
}
Grads swapped(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  return {dy * gate * sigmoid(gate), dy * up * slope_of(gate)};
}
Grads gate_alone(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  return {dy * up * slope_of(gate), dy * sigmoid(gate)};
}

Case of(const std::string& name, const Shape& shape, const Tensor& gate) {
  return {name, {noise(1, shape), gate, noise(3, shape)}};
}
Case of(const std::string& name, const Shape& shape) { return of(name, shape, noise(2, shape)); }

}  // namespace swiglu_check

Exercise swiglu_exercise(swiglu_check::Forward forward, swiglu_check::Backward backward) {
  using namespace swiglu_check;
  const std::vector<Case> cases = {
      of("a matrix", {3, 4}),
      of("a single number", {1}),
      of("batches", {2, 2, 3}),
      of("gates of 0", {2, 2}, zeros({2, 2}, f64)),
      of("gates far from 0", {2, 2}, tensor({{-1000.0, 1000.0}, {-40.0, 40.0}}, f64)),
      of("the gate is not contiguous", {3, 4}, transposed_in_memory(noise(2, {3, 4}))),
      of("no rows at all", {0, 4})};
  return {
      "18_swiglu",
      "lesson 3",
      {"y is a product of two functions that do not share an input. What is the derivative of a "
       "product with respect to one of its factors?",
       "dup = dy silu(gate). dgate = dy up silu'(gate), and silu(g) = g s(g) is itself a product.",
       "silu' = s + g s (1 - s) = s (1 + g (1 - s)). sigmoid(x) is right for all numbers; "
       "exp(x) / (1 + exp(x)) divides infinity by infinity."},
      {"autograd/ops/swiglu.cpp", "void swiglu_backward(",
       "It computes s again from gate instead of keeping it: an exponential costs less than "
       "writing and reading a tensor. One pass gives both gradients."},
      {{"swiglu_forward",
        {"y"},
        answer(forward, 1),
        answer(right, 1),
        cases,
        {{answer([](const Tensor& gate, const Tensor& up) { return sigmoid(gate) * up; }, 1),
          "This is GLU, whose gate is sigmoid(gate). silu has the factor gate, too."},
         {answer([](const Tensor& gate, const Tensor& up) { return gate * sigmoid(up) * up; }, 1),
          "up is its own gate here. The sigmoid is that of gate."},
         {answer([](const Tensor& gate) { return gate * sigmoid(gate); }, 1),
          "silu(gate) is right, but it is not multiplied by up."},
         {answer(infinite, 1),
          "exp of a large gate is infinite, and infinity divided by itself is NaN. Divide 1 by "
          "1 + exp(-g), or use sigmoid."}}},
       {"swiglu_backward",
        {"dgate", "dup"},
        answer(backward),
        gradients(answer(right, 1), 2),
        cases,
        {{sloped([](const Tensor&, const Tensor& s) { return s * (1 - s); }),
          "dgate has the slope of the sigmoid. silu is gate times the sigmoid: the product rule."},
         {sloped([](const Tensor&, const Tensor& s) { return s; }),
          "dgate treats the sigmoid as a constant. It depends on gate: a term is missing."},
         {sloped([](const Tensor& g, const Tensor& s) { return g * s * (1 - s); }),
          "dgate lacks the term in which gate itself changes, with the slope s."},
         {answer(no_up_in_dgate), "dgate lacks the factor up."},
         {answer(swapped), "The two gradients are swapped: dgate comes first."},
         {answer(gate_alone), "dup is dy times silu(gate). Here it has the sigmoid alone."}}}}};
}

}  // namespace ink
