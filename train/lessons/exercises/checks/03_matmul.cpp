#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace matmul_check {

// inputs: dy, a, b
using Backward = Grads (*)(const Tensor&, const Tensor&, const Tensor&);

Tensor product(const Tensor& a, const Tensor& b) { return matmul(a, b); }
Tensor flipped(const Tensor& x) { return x.transpose(-2, -1); }

Grads not_summed(const Tensor& dy, const Tensor& a, const Tensor& b) {
  return {matmul(dy, flipped(b)), matmul(flipped(a), dy)};
}
Grads averaged(const Tensor& dy, const Tensor& a, const Tensor& b) {
  const Grads grads = not_summed(dy, a, b);
  return {grads[0], grads[1].dim() > b.dim() ? mean(grads[1], {0}) : grads[1]};
}
Grads transposed(const Tensor& dy, const Tensor& a, const Tensor& b) {
  return {matmul(dy, flipped(b)), flipped(sum_to(matmul(flipped(a), dy), b.shape()))};
}
Grads exchanged(const Tensor& dy, const Tensor& a, const Tensor& b) {
  return {sum_to(matmul(flipped(a), dy), b.shape()), matmul(dy, flipped(b))};
}

}  // namespace matmul_check

Exercise matmul_exercise(matmul_check::Backward matmul_backward) {
  using namespace matmul_check;
  return {"03_matmul",
          "lesson 2",
          {"Write the shapes of dy, a and b below each other. Which product of two of them, one "
           "transposed, has the shape of a?",
           "da = dy b^T and db = a^T dy: see that the shapes fit.",
           "Where b has no batches and a has, a^T dy has one matrix for each batch: sum_to(db, "
           "b.shape()) adds them. matmul(dy, b.transpose(-2, -1)) is da."},
          {"autograd/ops/matmul.cpp", "Tensor batched_matmul(",
           "Its vjp is your two lines, but nothing is transposed in memory: a product reads an "
           "operand through its strides. It computes only the gradients that someone asked for."},
          {{"matmul_backward",
            {"da", "db"},
            answer(matmul_backward),
            gradients(answer(product, 1), 2),
            {noise_case("matrices", {{2, 4}, {2, 3}, {3, 4}}),
             noise_case("a single row", {{1, 4}, {1, 3}, {3, 4}}),
             noise_case("an inner size of 1", {{2, 4}, {2, 1}, {1, 4}}),
             noise_case("batches", {{2, 2, 4}, {2, 2, 3}, {2, 3, 4}}),
             noise_case("one b for all batches", {{2, 2, 4}, {2, 2, 3}, {3, 4}}),
             {"a is not contiguous",
              {noise(1, {2, 4}), transposed_in_memory(noise(2, {2, 3})), noise(3, {3, 4})}},
             noise_case("no rows at all", {{0, 4}, {0, 3}, {3, 4}})},
            {{answer(not_summed),
              "b serves all batches, so its gradient is the sum over them: db has b's shape."},
             {answer(averaged),
              "This is db's mean over the batches. Gradients of several uses are added."},
             {answer(transposed), "db comes out transposed: (a^T dy), not (dy^T a)."},
             {answer(exchanged),
              "da and db are exchanged: gradients come in the order of the inputs."}}}}};
}

}  // namespace ink
