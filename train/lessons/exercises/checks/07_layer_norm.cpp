#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace layer_norm_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, double);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&, double);

Answer answered(Backward f) {
  return [f](const Tensors& in) -> Tensors { return f(in[0], in[1], in[2], in[4].item()); };
}

// inputs: dy, x, weight, bias, eps
struct How {
  int64_t dim = -1;
  bool unbiased = false, eps_inside = true, centres = true, roots = true;
};
Answer forward_by(const How& how) {
  const auto f = [how](const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
    const Tensor centred = x - mean(x, {how.dim}, true);
    const Tensor variance =
        how.unbiased ? var(x, {how.dim}, 1, true) : mean(square(centred), {how.dim}, true);
    const Tensor rstd = how.eps_inside ? rsqrt(variance + eps) : 1 / (sqrt(variance) + eps);
    return (how.centres ? centred : x) * (how.roots ? rstd : square(rstd)) * w + b;
  };
  return answer(f, 1);
}

// What a mistake does not concern is right.
struct BackwardHow {
  bool by_mean = true, by_variance = true, weighs = true, normal = true, adds = true;
};
Answer backward_by(const BackwardHow& how) {
  return answer([how](const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor&,
                      double eps) -> Grads {
    const Tensor centred = x - mean(x, {-1}, true);
    const Tensor rstd = rsqrt(mean(square(centred), {-1}, true) + eps), xhat = centred * rstd;
    const Tensor d = how.weighs ? dy * w : dy;
    Tensor dx = d;
    if (how.by_mean) dx = dx - mean(d, {-1}, true);
    if (how.by_variance) dx = dx - xhat * mean(d * xhat, {-1}, true);
    return {rstd * dx, sum_to(dy * (how.normal ? xhat : x), w.shape()),
            how.adds ? sum_to(dy, w.shape()) : mean(dy.reshape({-1, dy.size(-1)}), {0})};
  });
}

Case of(const std::string& name, const Shape& shape, const Tensor& x, double eps = 1e-5) {
  const int64_t C = shape[-1];
  return {name, {noise(1, shape), x, noise(3, {C}), noise(4, {C}), scalar(eps)}};
}
Case of(const std::string& name, const Shape& shape) { return of(name, shape, noise(2, shape)); }

}  // namespace layer_norm_check

Exercise layer_norm_exercise(layer_norm_check::Forward forward,
                             layer_norm_check::Backward backward) {
  using namespace layer_norm_check;
  const std::vector<Case> cases = {
      of("a matrix", {3, 4}),
      of("a single row", {1, 4}),
      of("batches", {2, 2, 4}),
      of("nearly equal numbers, and eps = 0.1", {2, 4}, 1 + noise(2, {2, 4}) * 0.1, 0.1),
      of("equal numbers in a row", {1, 4}, full({1, 4}, 3.0, f64)),
      of("x is not contiguous", {3, 4}, transposed_in_memory(noise(2, {3, 4}))),
      of("far from 0", {2, 4}, 100 + noise(2, {2, 4}))};
  return {
      "07_layer_norm",
      "lesson 4",
      {"Forward: which numbers are there one of for each row? keepdim leaves them a column, so "
       "that they are broadcast. Backward: begin with dweight and dbias, which are like "
       "exercise 2.",
       "Forward: centred = x - mean(x, {-1}, true), and rstd = rsqrt(mean(square(centred), "
       "{-1}, true) + eps). Backward: compute both again.",
       "Then xhat = centred * rstd and dxhat = dy * weight, and put them into the formula. "
       "dweight = sum_to(dy * xhat, weight.shape()), dbias = sum_to(dy, weight.shape())."},
      {"autograd/ops/layer_norm.cpp", "void norm_backward(",
       "It keeps mean and rstd of each row, two numbers, instead of xhat, which would be as "
       "large as x: computing xhat again is cheaper than reading it from memory."},
      {{"layer_norm_forward",
        {"y"},
        answer(forward, 1),
        forward_by({}),
        cases,
        {{forward_by({.unbiased = true}),
          "The variance divides by C here, not by C - 1 (var(x) without correction 0 does)."},
         {forward_by({.eps_inside = false}),
          "eps is added to the variance, inside of the square root."},
         {forward_by({.dim = 0}),
          "This normalises columns. Rows lie along the last dimension, -1."},
         {forward_by({.roots = false}), "This divides by the variance. Divide by its square root."},
         {forward_by({.centres = false}), "x is divided, but its mean was not subtracted."}}},
       {"layer_norm_backward",
        {"dx", "dweight", "dbias"},
        answered(backward),
        gradients(forward_by({}), 3),
        cases,
        {{backward_by({.by_mean = false, .by_variance = false}),
          "dx treats the mean and the variance as constants. Both depend on x: two terms are "
          "missing."},
         {backward_by({.by_variance = false}),
          "dx treats the variance as a constant: the term with xhat mean(dxhat xhat) is missing."},
         {backward_by({.weighs = false}), "dx lacks the weight: dxhat is dy weight."},
         {backward_by({.normal = false}),
          "dweight multiplies dy by x. It is xhat that weight was multiplied by."},
         {backward_by({.adds = false}),
          "dbias is a mean over the rows here. Gradients of rows are added."}}}}};
}

}  // namespace ink
