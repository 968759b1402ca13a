// Exercise 24: a sum over ranks in a fixed order
//
// Several processes, the ranks, train one model. Each has a part of the batch and so a part of the
// gradient. All parts are sent to all ranks, each rank adds them up, and each takes the step. Then
// all ranks must have the same bits: otherwise their weights drift apart, step by step, and nobody
// notices.
//
// Sums of floating numbers depend on their order. In f32, where 1e8 has no neighbour nearer than 8:
//
//   (1e8 + 1) - 1e8 = 0,    (1e8 - 1e8) + 1 = 1
//
// Parts arrive in another order on each rank and in each run: parts[i] came from rank from[i]. A
// rank's own part is among them. Add them in the one order that all ranks know, that of the ranks:
//
//   ((part of rank 0 + part of rank 1) + part of rank 2) + ...
//
// parts are f32 and of one shape, and the sum is f32. Leave them as they are. `here` is the rank
// that asks; Ints is std::vector<int64_t>.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor sum_of_ranks(int64_t here, const Ints& from, const Tensors& parts) {
  // >>> todo("sum_of_ranks");
  static_cast<void>(here);  // every rank does the same
  Tensors in_order(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) in_order[static_cast<size_t>(from[i])] = parts[i];
  Tensor total = in_order[0];
  for (size_t rank = 1; rank < parts.size(); ++rank) total = total + in_order[rank];
  return total;
  // <<<
}

INK_EXERCISE(ranks_exercise(sum_of_ranks))
