// Parts of a batch side by side: threads that share one model.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// The mean loss of rows [first, first + count) of a batch, as a graph.
using PartLoss = std::function<Tensor(int64_t first, int64_t count)>;

/// Forward and backward of a batch of `rows` rows in `parts` parts, each on a thread of its own:
/// adds the gradients of `scale` times the batch's mean loss to `parameters`, and returns that mean
/// loss (not scaled, outside any graph). Inside a part every op runs on one thread, so that the
/// threads meet once a step and not at every op, and work on memory in caches of their own; in
/// return each part has gradients of its own while it runs, which are then summed in order. Random
/// masks are those of the whole batch. The bits depend on `parts` and on nothing else. The first
/// exception of a part is thrown on in the caller.
Tensor backward_in_parts(const std::vector<Tensor>& parameters, int64_t rows, int64_t parts,
                         double scale, const PartLoss& loss);

}  // namespace ink
