#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace rms_norm_check {

using Forward = Tensor (*)(const Tensor&, const Tensor&, double);
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&, double);

// inputs: dy, x, weight, eps
Answer answer(Forward f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[1], in[2], in[3].item())}; };
}
Answer answer(Backward f) {
  return [f](const Tensors& in) -> Tensors { return f(in[0], in[1], in[2], in[3].item()); };
}

Tensor rstd_of(const Tensor& x, double eps, int64_t dim = -1) {
  return rsqrt(mean(square(x), {dim}, true) + eps);
}
Tensor right(const Tensor& x, const Tensor& w, double eps) { return x * rstd_of(x, eps) * w; }
Tensors expected_gradients(const Tensors& in) {
  const auto forward = [](const Tensors& x) { return right(x[1], x[2], x[3].item()); };
  return {difference(forward, in, 1, in[0]), difference(forward, in, 2, in[0])};
}

Tensor layer_norm(const Tensor& x, const Tensor& w, double eps) {
  const Tensor centred = x - mean(x, {-1}, true);
  return centred * rstd_of(centred, eps) * w;
}
Tensor by_the_sum(const Tensor& x, const Tensor& w, double eps) {
  return x * rsqrt(sum(square(x), {-1}, true) + eps) * w;
}
Tensor by_columns(const Tensor& x, const Tensor& w, double eps) {
  return x * rstd_of(x, eps, 0) * w;
}
Tensor by_the_square(const Tensor& x, const Tensor& w, double eps) {
  return x * square(rstd_of(x, eps)) * w;
}
Tensor eps_outside(const Tensor& x, const Tensor& w, double eps) {
  return x / (sqrt(mean(square(x), {-1}, true)) + eps) * w;
}

Grads backward(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  const Tensor rstd = rstd_of(x, eps), xhat = x * rstd, d = dy * w;
  return {rstd * (d - xhat * mean(d * xhat, {-1}, true)), sum_to(dy * xhat, w.shape())};
}
Grads constant_rstd(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return {rstd_of(x, eps) * dy * w, backward(dy, x, w, eps)[1]};
}
Grads of_layer_norm(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  const Grads right = backward(dy, x, w, eps);
  return {right[0] - rstd_of(x, eps) * mean(dy * w, {-1}, true), right[1]};
}
Grads no_weight(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return {backward(dy, x, ones_like(w), eps)[0], backward(dy, x, w, eps)[1]};
}
Grads sum_in_dx(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  const Tensor rstd = rstd_of(x, eps), xhat = x * rstd, d = dy * w;
  return {rstd * (d - xhat * sum(d * xhat, {-1}, true)), backward(dy, x, w, eps)[1]};
}
Grads raw_x(const Tensor& dy, const Tensor& x, const Tensor& w, double eps) {
  return {backward(dy, x, w, eps)[0], sum_to(dy * x, w.shape())};
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
        answer(forward),
        answer(right),
        cases,
        {{answer(layer_norm), "This subtracts the mean. RMS norm leaves it where it is."},
         {answer(by_the_sum), "This divides by the root of the sum of squares. It is their mean."},
         {answer(by_columns), "This normalises columns. Rows lie along the last dimension, -1."},
         {answer(by_the_square), "This divides by the mean square. Divide by its square root."},
         {answer(eps_outside), "eps is added to the mean square, inside of the square root."}}},
       {"rms_norm_backward",
        {"dx", "dweight"},
        answer(backward),
        expected_gradients,
        cases,
        {{answer(constant_rstd),
          "dx treats rstd as a constant. It depends on x: a term is missing."},
         {answer(of_layer_norm),
          "dx subtracts mean(dxhat). That belongs to layer norm, which subtracts the mean of x."},
         {answer(no_weight), "dx lacks the weight: dxhat is dy weight."},
         {answer(sum_in_dx), "dx has a sum over the row where a mean belongs: rstd has a 1/C."},
         {answer(raw_x),
          "dweight multiplies dy by x. It is xhat that weight was multiplied by."}}}}};
}

}  // namespace ink
