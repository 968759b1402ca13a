#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace rms_norm_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&, double);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&, double);

// inputs: dy, x, weight, eps
struct How {
  int64_t dim = -1;
  bool centres = false, by_mean = true, roots = true, eps_inside = true;
};
Answer forward_by(const How& how) {
  const auto f = [how](const Tensor& x, const Tensor& w, double eps) {
    const Tensor y = how.centres ? x - mean(x, {-1}, true) : x, squares = square(y);
    const Tensor m = how.by_mean ? mean(squares, {how.dim}, true) : sum(squares, {-1}, true);
    const Tensor rstd = how.eps_inside ? rsqrt(m + eps) : 1 / (sqrt(m) + eps);
    return y * (how.roots ? rstd : square(rstd)) * w;
  };
  return answer(f, 1);
}

// What a mistake does not concern is right.
struct BackwardHow {
  bool by_rstd = true, centres = false, weighs = true, by_mean = true, normal = true;
};
Answer backward_by(const BackwardHow& how) {
  return answer([how](const Tensor& dy, const Tensor& x, const Tensor& w, double eps) -> Grads {
    const Tensor rstd = rsqrt(mean(square(x), {-1}, true) + eps), xhat = x * rstd;
    const Tensor d = how.weighs ? dy * w : dy, along = d * xhat;
    Tensor dx = d;
    if (how.by_rstd)
      dx = dx - xhat * (how.by_mean ? mean(along, {-1}, true) : sum(along, {-1}, true));
    if (how.centres) dx = dx - mean(d, {-1}, true);
    return {rstd * dx, sum_to(dy * (how.normal ? xhat : x), w.shape())};
  });
}

Case of(const std::string& name, const Shape& shape, const Tensor& x, double eps = 1e-5) {
  return {name, {noise(1, shape), x, noise(3, {shape[-1]}), scalar(eps)}};
}
Case of(const std::string& name, const Shape& shape) { return of(name, shape, noise(2, shape)); }

}  // namespace rms_norm_check

Exercise rms_norm_exercise(rms_norm_check::Forward forward, rms_norm_check::Backward backward) {
  using namespace rms_norm_check;
  const std::vector<Case> cases = {
      of("a matrix", {3, 4}),
      of("a single row", {1, 4}),
      of("batches", {2, 2, 4}),
      of("small numbers, and eps = 0.1", {2, 4}, noise(2, {2, 4}) * 0.3, 0.1),
      of("zeros in a row", {1, 4}, zeros({1, 4}, f64)),
      of("x is not contiguous", {3, 4}, transposed_in_memory(noise(2, {3, 4}))),
      of("far from 0", {2, 4}, 100 + noise(2, {2, 4}))};
  return {
      "17_rms_norm",
      "lesson 4",
      {"Take your answer to exercise 7 and strike out all that comes from the mean and from bias.",
       "Forward: rstd = rsqrt(mean(square(x), {-1}, true) + eps), and y = x * rstd * weight. "
       "Backward: compute rstd and xhat again, and dxhat = dy * weight.",
       "drstd / dx[j] = -rstd^3 x[j] / C. So the way through rstd gives -rstd xhat mean(dxhat "
       "xhat), and x itself gives rstd dxhat. dweight = sum_to(dy * xhat, weight.shape())."},
      {"autograd/ops/layer_norm.cpp", "[[gnu::always_inline]] inline C rms_normalise(",
       "It keeps one number for each row, and shares the loops over rows with layer norm. In a "
       "model the addition before it runs in the same pass (add_rms_norm), because the sum would "
       "otherwise be written and read once more."},
      {{"rms_norm_forward",
        {"y"},
        answer(forward, 1),
        forward_by({}),
        cases,
        {{forward_by({.centres = true}),
          "This subtracts the mean. RMS norm leaves it where it is."},
         {forward_by({.by_mean = false}),
          "This divides by the root of the sum of squares. It is their mean."},
         {forward_by({.dim = 0}),
          "This normalises columns. Rows lie along the last dimension, -1."},
         {forward_by({.roots = false}),
          "This divides by the mean square. Divide by its square root."},
         {forward_by({.eps_inside = false}),
          "eps is added to the mean square, inside of the square root."}}},
       {"rms_norm_backward",
        {"dx", "dweight"},
        answer(backward),
        gradients(forward_by({}), 2),
        cases,
        {{backward_by({.by_rstd = false}),
          "dx treats rstd as a constant. It depends on x: a term is missing."},
         {backward_by({.centres = true}),
          "dx subtracts mean(dxhat). That belongs to layer norm, which subtracts the mean of x."},
         {backward_by({.weighs = false}), "dx lacks the weight: dxhat is dy weight."},
         {backward_by({.by_mean = false}),
          "dx has a sum over the row where a mean belongs: rstd has a 1/C."},
         {backward_by({.normal = false}),
          "dweight multiplies dy by x. It is xhat that weight was multiplied by."}}}}};
}

}  // namespace ink
