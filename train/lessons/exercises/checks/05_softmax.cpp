#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace softmax_check {

Tensor forward(const Tensor& x) {
  const Tensor e = exp(x - amax(x, {-1}, true));
  return e / sum(e, {-1}, true);
}

// inputs: dy, x
Answer given_y(Tensor (*f)(const Tensor& dy, const Tensor& y)) {
  return [f](const Tensors& in) -> Tensors {
    const Tensor y = forward(in[1]);
    return {f(in[0], in[0].is_contiguous() ? y : transposed_in_memory(y))};
  };
}

Case of(const std::string& name, const Shape& shape) { return noise_case(name, {shape, shape}); }

}  // namespace softmax_check

Exercise softmax_exercise(Tensor (*softmax_backward)(const Tensor&, const Tensor&)) {
  using namespace softmax_check;
  const Tensor two_rows = noise(1, {2, 3});
  return {
      "05_softmax",
      "lessons 2 and 3",
      {"The sum over i has one term with i == j and many others. Write it as two parts.",
       "dx[j] = sum over i of dy[i] y[i] ((i == j) - y[j]). The part with i == j gives dy[j] y[j].",
       "In the other part y[j] does not depend on i, so it stands before the sum: y[j] times "
       "the sum of dy[i] y[i]. Both parts have the factor y[j]."},
      {"autograd/ops/softmax.cpp", "void softmax_backward(",
       "It does the same in one pass over each row, which stays in the cache, and makes no "
       "tensor for dy * y."},
      {{"softmax_backward",
        {"dx"},
        given_y(softmax_backward),
        gradients(answer(forward, 1), 1),
        {of("a matrix", {3, 4}),
         of("a single row", {1, 4}),
         of("batches", {2, 2, 3}),
         {"large logits", {two_rows, tensor({{1000.0, 999.0, 0.0}, {-800.0, 1.0, 0.5}}, f64)}},
         {"-inf under a mask", {two_rows, tensor({{0.3, -inf, -inf}, {1.0, 0.5, -inf}}, f64)}},
         of("one element in a row", {3, 1}),
         {"dy and y are not contiguous",
          {transposed_in_memory(noise(1, {3, 4})), noise(2, {3, 4})}},
         of("no rows at all", {0, 4})},
        {{given_y([](const Tensor& dy, const Tensor& y) { return dy * y; }),
          "This is the gradient of exp. The sum that y is divided by depends on x, too."},
         {given_y([](const Tensor& dy, const Tensor& y) { return dy * y * (1 - y); }),
          "This takes slope[i][i] alone. Each x[j] also changes all other y[i] of its row."},
         {given_y([](const Tensor& dy, const Tensor& y) {
            return y * (dy - mean(dy * y, {-1}, true));
          }),
          "This subtracts the mean of dy y over the row. It is the sum."},
         {given_y([](const Tensor& dy, const Tensor& y) { return y * (dy - sum(dy, {-1}, true)); }),
          "This subtracts the sum of dy. Each dy[i] counts with its y[i]: sum(dy * y)."},
         {given_y([](const Tensor& dy, const Tensor& y) { return dy - y * sum(dy, {-1}, true); }),
          "This is the gradient of log_softmax. Here each slope has the factor y[i]."},
         {given_y(
              [](const Tensor& dy, const Tensor& y) { return y * (dy - sum(dy * y, {0}, true)); }),
          "This sums over columns. Rows lie along the last dimension, -1."},
         {given_y([](const Tensor& dy, const Tensor& y) { return y * (dy - sum(dy * y)); }),
          "This sums over all rows at once. Each row has a sum of its own: {-1} and keepdim."}}}}};
}

}  // namespace ink
