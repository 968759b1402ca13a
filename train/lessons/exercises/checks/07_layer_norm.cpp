#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace layer_norm_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, double);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&, double);

// inputs: dy, x, weight, bias, eps
Answer answer(Forward f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[1], in[2], in[3], in[4].item())}; };
}
Answer answer(Backward f) {
  return [f](const Tensors& in) -> Tensors { return f(in[0], in[1], in[2], in[4].item()); };
}

// Statistics of x along dimension `dim`.
struct Rows {
  Tensor centred, rstd, xhat;
  Rows(const Tensor& x, double eps, int64_t dim = -1)
      : centred(x - mean(x, {dim}, true)),
        rstd(rsqrt(mean(square(centred), {dim}, true) + eps)),
        xhat(centred * rstd) {}
};
Tensor right(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return Rows(x, eps).xhat * w + b;
}
Tensors expected_y(const Tensors& in) { return {right(in[1], in[2], in[3], in[4].item())}; }
Tensors expected_gradients(const Tensors& in) {
  const auto forward = [](const Tensors& x) { return right(x[1], x[2], x[3], x[4].item()); };
  return {difference(forward, in, 1, in[0]), difference(forward, in, 2, in[0]),
          difference(forward, in, 3, in[0])};
}

// The mistakes of the forward.
Tensor unbiased(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return (x - mean(x, {-1}, true)) * rsqrt(var(x, {-1}, 1, true) + eps) * w + b;
}
Tensor eps_outside(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return (x - mean(x, {-1}, true)) / (sqrt(var(x, {-1}, 0, true)) + eps) * w + b;
}
Tensor by_columns(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return Rows(x, eps, 0).xhat * w + b;
}
Tensor by_variance(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  const Rows rows(x, eps);
  return rows.xhat * rows.rstd * w + b;
}
Tensor not_centred(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return x * Rows(x, eps).rstd * w + b;
}

// The mistakes of the backward. What they do not concern is right.
Grads backward(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  const Rows r(x, eps);
  const Tensor d = dy * w;
  const Tensor dx = r.rstd * (d - mean(d, {-1}, true) - r.xhat * mean(d * r.xhat, {-1}, true));
  return {dx, sum_to(dy * r.xhat, w.shape()), sum_to(dy, w.shape())};
}
Grads with(const Grads& grads, size_t i, const Tensor& wrong) {
  Grads result = grads;
  result[i] = wrong;
  return result;
}
Grads constants(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return with(backward(dy, x, w, eps), 0, Rows(x, eps).rstd * dy * w);
}
Grads constant_variance(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  const Tensor d = dy * w;
  return with(backward(dy, x, w, eps), 0, Rows(x, eps).rstd * (d - mean(d, {-1}, true)));
}
Grads no_weight(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return with(backward(dy, x, w, eps), 0, backward(dy, x, ones_like(w), eps)[0]);
}
Grads raw_x(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return with(backward(dy, x, w, eps), 1, sum_to(dy * x, w.shape()));
}
Grads mean_bias(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return with(backward(dy, x, w, eps), 2, mean(dy.reshape({-1, dy.size(-1)}), {0}));
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
        answer(forward),
        expected_y,
        cases,
        {{answer(unbiased),
          "The variance divides by C here, not by C - 1 (var(x) without correction 0 does)."},
         {answer(eps_outside), "eps is added to the variance, inside of the square root."},
         {answer(by_columns), "This normalises columns. Rows lie along the last dimension, -1."},
         {answer(by_variance), "This divides by the variance. Divide by its square root."},
         {answer(not_centred), "x is divided, but its mean was not subtracted."}}},
       {"layer_norm_backward",
        {"dx", "dweight", "dbias"},
        answer(backward),
        expected_gradients,
        cases,
        {{answer(constants),
          "dx treats the mean and the variance as constants. Both depend on x: two terms are "
          "missing."},
         {answer(constant_variance),
          "dx treats the variance as a constant: the term with xhat mean(dxhat xhat) is missing."},
         {answer(no_weight), "dx lacks the weight: dxhat is dy weight."},
         {answer(raw_x), "dweight multiplies dy by x. It is xhat that weight was multiplied by."},
         {answer(mean_bias),
          "dbias is a mean over the rows here. Gradients of rows are added."}}}}};
}

}  // namespace ink
