#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace swiglu_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&);

// inputs: dy, gate, up
Answer answer(Forward f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[1], in[2])}; };
}
Answer answer(Backward f) {
  return [f](const Tensors& in) -> Tensors { return f(in[0], in[1], in[2]); };
}

// Element by element.
Tensor right(const Tensor& gate, const Tensor& up) {
  std::vector<double> y = gate.tolist();
  const std::vector<double> u = up.tolist();
  for (size_t i = 0; i < y.size(); ++i) y[i] = u[i] * y[i] / (1 + std::exp(-y[i]));
  return from_vector(y, gate.shape());
}
Tensors expected_gradients(const Tensors& in) {
  const auto forward = [](const Tensors& x) { return right(x[1], x[2]); };
  return {difference(forward, in, 1, in[0]), difference(forward, in, 2, in[0])};
}

Tensor glu(const Tensor& gate, const Tensor& up) { return sigmoid(gate) * up; }
Tensor gates_itself(const Tensor& gate, const Tensor& up) { return gate * sigmoid(up) * up; }
Tensor no_up(const Tensor& gate, const Tensor&) { return gate * sigmoid(gate); }
Tensor infinite(const Tensor& gate, const Tensor& up) {
  const Tensor e = exp(gate);
  return gate * e / (1 + e) * up;
}

Grads with(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& slope) {
  return {dy * up * slope, dy * gate * sigmoid(gate)};
}
Tensor slope_of(const Tensor& gate) {
  const Tensor s = sigmoid(gate);
  return s * (1 + gate * (1 - s));
}
Grads slope_of_s(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  const Tensor s = sigmoid(gate);
  return with(dy, gate, up, s * (1 - s));
}
Grads s_alone(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  return with(dy, gate, up, sigmoid(gate));
}
Grads one_term(const Tensor& dy, const Tensor& gate, const Tensor& up) {
  const Tensor s = sigmoid(gate);
  return with(dy, gate, up, gate * s * (1 - s));
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
        answer(forward),
        answer(right),
        cases,
        {{answer(glu), "This is GLU, whose gate is sigmoid(gate). silu has the factor gate, too."},
         {answer(gates_itself), "up is its own gate here. The sigmoid is that of gate."},
         {answer(no_up), "silu(gate) is right, but it is not multiplied by up."},
         {answer(infinite),
          "exp of a large gate is infinite, and infinity divided by itself is NaN. Divide 1 by "
          "1 + exp(-g), or use sigmoid."}}},
       {"swiglu_backward",
        {"dgate", "dup"},
        answer(backward),
        expected_gradients,
        cases,
        {{answer(slope_of_s),
          "dgate has the slope of the sigmoid. silu is gate times the sigmoid: the product rule."},
         {answer(s_alone),
          "dgate treats the sigmoid as a constant. It depends on gate: a term is missing."},
         {answer(one_term), "dgate lacks the term in which gate itself changes, with the slope s."},
         {answer(no_up_in_dgate), "dgate lacks the factor up."},
         {answer(swapped), "The two gradients are swapped: dgate comes first."},
         {answer(gate_alone), "dup is dy times silu(gate). Here it has the sigmoid alone."}}}}};
}

}  // namespace ink
