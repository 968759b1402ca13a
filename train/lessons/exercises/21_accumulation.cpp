// Exercise 21: micro-batches, and targets that do not count
//
// A batch that does not fit into memory is cut into micro-batches. Each runs forward and backward,
// and leaves add up the gradients that arrive. The step after that should be the step of the whole
// batch, so the loss of the whole batch is what must have been differentiated:
//
//   loss = (sum of -log p(target) over all targets that count) / (how many count)
//
// Targets of -100 do not count: padding, or a question to which the model learns the answer. Their
// rows get no gradient. How many count differs from one micro-batch to the next, so the mean of the
// micro-batches' means is not the mean of all.
//
// logits[i] is (N_i, V), and targets[i] is (N_i,). Call backward() once for each micro-batch, and
// return the loss of the whole batch, as a scalar without a graph. If no target counts at all, the
// loss is 0, and so are the gradients.
//
// Useful: cross_entropy(logits, targets, -100, Reduction::sum) is the sum over targets that count;
// sum(targets != -100) counts them; x.item<int64_t>(), x.detach(). Lesson 5 explains the loop.
#include "train/lessons/exercises/exercise.h"

#include <algorithm>

using namespace ink;

Tensor accumulated_loss(const Tensors& logits, const Tensors& targets) {
  // >>> todo("accumulated_loss");
  int64_t count = 0;
  for (const Tensor& t : targets) count += sum(t != -100).item<int64_t>();
  Tensor total = zeros({}, f64);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Tensor loss = cross_entropy(logits[i], targets[i], -100, Reduction::sum) /
                        static_cast<double>(std::max<int64_t>(count, 1));
    loss.backward();
    total = total + loss.detach();
  }
  return total;
  // <<<
}

INK_EXERCISE(accumulation_exercise(accumulated_loss))
