#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace broadcasting_check {

using SumTo = Tensor (*)(const Tensor&, const Shape&);

Tensor broadcast(const Tensor& dy, const Tensor& x) { return x.expand(dy.shape()); }

Tensor without_size_1(const Tensor& dy, const Shape& shape) {
  Tensor dx = dy;
  while (dx.dim() > shape.size()) dx = sum(dx, {0});
  return dx;
}

// Reduces like the solution, by another function than sum.
template <class Reduce>
Tensor reduced(Tensor dx, const Shape& shape, bool keepdim, Reduce reduce) {
  while (dx.dim() > shape.size()) dx = reduce(dx, 0, false);
  for (int64_t d = shape.size() - 1; d >= 0; --d)
    if (shape[d] == 1) dx = reduce(dx, d, keepdim);
  return dx;
}

}  // namespace broadcasting_check

Exercise broadcasting_exercise(broadcasting_check::SumTo sum_to_shape) {
  using namespace broadcasting_check;
  return {"02_broadcasting",
          "lessons 1 and 2",
          {"One number of the input was used for many numbers of the output. What does the "
           "chain rule do with the gradients of all its uses?",
           "They are added. Which dimensions are there to sum over? Those that are missing in "
           "`shape`, in front, and those that have size 1 in it.",
           "First sum over dimension 0 until no dimension is missing. Then sum, with keepdim, "
           "over every dimension in which `shape` has size 1."},
          {"autograd/ops/reduce.cpp", "Tensor sum_to(",
           "It finds all these dimensions first and sums over them in one pass, where you make "
           "a tensor for each. Nothing is summed where the shapes are equal already."},
          {{"sum_to_shape",
            {"dx"},
            answer(sum_to_shape),
            gradients(answer(broadcast), 1),
            {noise_case("a bias for all rows", {{3, 4}, {4}}),
             noise_case("a dimension of size 1", {{3, 4}, {3, 1}}),
             noise_case("both", {{2, 3, 4}, {3, 1}}),
             noise_case("size 1 in front", {{3, 4}, {1, 4}}),
             noise_case("nothing was broadcast", {{3, 4}, {3, 4}}),
             noise_case("a scalar", {{2, 3}, {}}),
             {"dy is not contiguous", {transposed_in_memory(noise(3, {3, 4})), noise(2, {3, 1})}},
             noise_case("no rows at all", {{0, 4}, {4}})},
            {{answer([](const Tensor& dy, const Shape& shape) {
                return reduced(dy, shape, true, [](const Tensor& x, int64_t d, bool keep) {
                  return mean(x, {d}, keep);
                });
              }),
              "This is the mean. Gradients of several uses are added, and nothing divides them."},
             {answer(without_size_1),
              "Dimensions of size 1 were broadcast, too: their gradients are not summed here."},
             {answer([](const Tensor& dy, const Shape& shape) {
                return reduced(dy, shape, false, [](const Tensor& x, int64_t d, bool keep) {
                  return sum(x, {d}, keep);
                });
              }),
              "A dimension of size 1 stays: sum it with keepdim, so that dx has the shape of x."},
             {answer([](const Tensor& dy, const Shape&) { return dy; }),
              "dx must have the shape that x had before it was broadcast. This is dy as it came."},
             {answer([](const Tensor& dy, const Shape& shape) {
                Tensor dx = dy;
                while (dx.dim() > shape.size()) dx = dx.select(0, 0);
                for (int64_t d = 0; d < shape.size(); ++d)
                  if (shape[d] == 1) dx = dx.narrow(d, 0, 1);
                return dx;
              }),
              "This takes the gradient of one use. An element gets the sum over all its uses."}}}}};
}

}  // namespace ink
