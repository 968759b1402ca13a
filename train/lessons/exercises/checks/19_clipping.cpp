#include <algorithm>
#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace clipping_check {

using F = Tensors (*)(const Tensors&, double);

// inputs: max_norm, then two gradients
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors { return f({in[1], in[2]}, in[0].item()); };
}

double norm_of(const Tensor& x) { return std::sqrt(sum(square(x)).item()); }
Tensors scaled(const Tensors& g, double norm, double factor) {
  return {scalar(norm), g[0] * factor, g[1] * factor};
}
double joint_norm(const Tensors& g) { return std::hypot(norm_of(g[0]), norm_of(g[1])); }
double factor_for(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

Tensors right(const Tensors& g, double max_norm) {
  const double norm = joint_norm(g);
  return scaled(g, norm, factor_for(norm, max_norm));
}
Tensors each_alone(const Tensors& g, double max_norm) {
  return {scalar(joint_norm(g)), g[0] * factor_for(norm_of(g[0]), max_norm),
          g[1] * factor_for(norm_of(g[1]), max_norm)};
}
Tensors sum_of_norms(const Tensors& g, double max_norm) {
  const double norm = norm_of(g[0]) + norm_of(g[1]);
  return scaled(g, norm, factor_for(norm, max_norm));
}
Tensors makes_larger(const Tensors& g, double max_norm) {
  const double norm = joint_norm(g);
  return scaled(g, norm, max_norm / (norm + 1e-6));
}
Tensors element_by_element(const Tensors& g, double max_norm) {
  return {scalar(joint_norm(g)), clamp(g[0], -max_norm, max_norm),
          clamp(g[1], -max_norm, max_norm)};
}
Tensors no_root(const Tensors& g, double max_norm) {
  const double norm = joint_norm(g) * joint_norm(g);
  return scaled(g, norm, factor_for(norm, max_norm));
}
Tensors norm_afterwards(const Tensors& g, double max_norm) {
  Tensors result = right(g, max_norm);
  result[0] = scalar(joint_norm({result[1], result[2]}));
  return result;
}

Case of(const std::string& name, double max_norm, double a, double b) {
  return {name, {scalar(max_norm), noise(1, {2, 3}) * a, noise(2, {4}) * b}};
}

}  // namespace clipping_check

Exercise clipping_exercise(clipping_check::F clipped) {
  using namespace clipping_check;
  return {
      "19_clipping",
      "lesson 5",
      {"You need the norm of everything before you can change anything: two loops.",
       "First loop: add up sum(square(g)).item() of all gradients. The norm is the square root of "
       "that sum, taken once.",
       "factor = std::min(1.0, max_norm / (norm + 1e-6)): where the norm is small enough, it is 1. "
       "Second loop: result.push_back(g * factor)."},
      {"nn/clip_grad.cpp", "Tensor clip_grad_norm_(",
       "It is your function, in place. The optimizers have a way of their own (grad_clip): the "
       "factor goes into the kernel of the step, so that the gradients are not read and written "
       "once more. The norm is summed in blocks of a fixed size, so that its bits do not depend on "
       "the number of threads."},
      {{"clipped",
        {"norm", "g[0]", "g[1]"},
        answer(clipped),
        answer(right),
        {of("too large", 1, 1, 1),
         of("small enough", 100, 1, 1),
         of("each small enough, together too large", 4, 1.2, 1.2),
         of("one is huge", 1, 1000, 0.1),
         of("nothing but zeros", 1, 0, 0),
         {"not contiguous", {scalar(1), transposed_in_memory(noise(1, {2, 3})), noise(2, {4})}}},
        {{answer(each_alone),
          "Each gradient is clipped by its own norm. That changes the direction: take one norm."},
         {answer(sum_of_norms),
          "This adds norms. Add the squares of all elements, and take one root at the end."},
         {answer(makes_larger), "Small gradients are made larger here. The factor is 1 at most."},
         {answer(element_by_element),
          "This clips each element, which changes the direction. Scale all by one factor."},
         {answer(no_root), "This is the sum of the squares. The norm is its square root."},
         {answer(norm_afterwards),
          "The norm is that after clipping. Return what it was before: it is what one "
          "watches."}}}}};
}

}  // namespace ink
