#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace dropout_check {

// inputs: x or dy, kept, p, training
using F = Tensor (*)(const Tensor&, const Tensor&, double, bool);

// The definition, element by element.
Tensor right(const Tensor& x, const Tensor& kept, double p, bool training) {
  std::vector<double> y = x.tolist();
  const std::vector<double> is_kept = kept.tolist();
  for (size_t i = 0; i < y.size() && training; ++i) y[i] = is_kept[i] == 0 ? 0 : y[i] / (1 - p);
  return from_vector(y, x.shape());
}
Tensors expected_dx(const Tensors& in) {
  const auto forward = [](const Tensors& x) { return answer(right)(x)[0]; };
  return {difference(forward, {noise(9, in[0].shape()), in[1], in[2], in[3]}, 0, in[0])};
}

// ---- mistakes, of both directions

Tensor no_factor(const Tensor& x, const Tensor& kept, double, bool training) {
  return training ? x * kept : x;
}
Tensor by_p(const Tensor& x, const Tensor& kept, double p, bool training) {
  return training ? p == 0 ? x : x * kept / p : x;
}
Tensor always(const Tensor& x, const Tensor& kept, double p, bool) {
  return right(x, kept, p, true);
}
Tensor factor_in_evaluation(const Tensor& x, const Tensor& kept, double p, bool training) {
  return training ? x * kept : x * (1 - p);
}
Tensor divides_by_0(const Tensor& x, const Tensor& kept, double p, bool training) {
  return training ? x * kept / (1 - p) : x;
}
Tensor drops_the_kept(const Tensor& x, const Tensor& kept, double p, bool training) {
  return right(x, 1 - kept, p, training);
}
Tensor no_mask(const Tensor& dy, const Tensor&, double p, bool training) {
  return training && p < 1 ? dy / (1 - p) : p < 1 ? dy : training ? zeros_like(dy) : dy;
}
Tensor identity(const Tensor& dy, const Tensor&, double, bool) { return dy; }

Case of(const std::string& name, const Tensor& x, double p, bool training) {
  Generator generator(7);
  const Tensor draws = rand(x.shape(), f64, generator);
  return {name, {x, (draws >= p).to(f64), scalar(p), scalar(training ? 1 : 0)}};
}

}  // namespace dropout_check

Exercise dropout_exercise(dropout_check::F forward, dropout_check::F backward) {
  using namespace dropout_check;
  const Tensor x = noise(1, {3, 4});
  const std::vector<Case> cases = {of("p = 0.3", x, 0.3, true),
                                   of("p = 0.8", x, 0.8, true),
                                   of("p = 0", x, 0, true),
                                   of("p = 1", x, 1, true),
                                   of("evaluation", x, 0.3, false),
                                   of("not contiguous", transposed_in_memory(x), 0.5, true),
                                   of("empty", noise(1, {0, 4}), 0.5, true)};
  const std::string dropped = "A dropped element has no influence: its gradient is 0, not dy.";
  return {
      "11_dropout",
      "lesson 4",
      {"What should the mean of y be, over all masks? And what should a model see that is no "
       "longer trained?",
       "In evaluation return x. In training return x * kept / (1 - p), but zeros where p is 1.",
       "The op multiplies each element by a number, so backward multiplies dy by the same "
       "number: the same three cases."},
      {"autograd/ops/dropout.cpp", "Tensor dropout(",
       "It keeps no mask: backward draws the same numbers again. They depend on seed, step and "
       "the element's place alone, so that neither threads nor micro-batches change the mask."},
      {{"dropout_forward",
        {"y"},
        answer(forward),
        answer(right),
        cases,
        {{answer(no_factor), "What is kept must be divided by 1 - p, so that the mean stays."},
         {answer(by_p), "This divides by p. Elements are kept with probability 1 - p."},
         {answer(always), "Evaluation drops elements here, too. It should return x."},
         {answer(factor_in_evaluation),
          "The factor stands in evaluation, as in the first paper. It belongs into training."},
         {answer(divides_by_0),
          "p = 1 divides 0 by 0, which is NaN. Nothing is kept: return zeros."},
         {answer(drops_the_kept), "The mask is the wrong way round: 1 means that x is kept."}}},
       {"dropout_backward",
        {"dx"},
        answer(backward),
        expected_dx,
        cases,
        {{answer(no_factor), "The factor 1 / (1 - p) of the forward is missing in backward."},
         {answer(no_mask), dropped},
         {answer(always), "Evaluation was the identity, so its gradient is dy as it came."},
         {answer(divides_by_0), "p = 1 divides 0 by 0. Nothing was kept: all gradients are zero."},
         {answer(identity),
          "This returns dy. Forward multiplied each element, and so must you."}}}}};
}

}  // namespace ink
