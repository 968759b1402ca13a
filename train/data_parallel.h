// Parts of a batch side by side: threads that share one model.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tensor.h"
#include "train/config.h"

namespace ink {

/// In how many parts a batch is worked on: config.batch_parts, or, where that is 0, one for each
/// thread for models of up to 2^22 parameters, whose further sets of gradients cost little, and one
/// for larger models. Never more than the batch has rows.
int64_t batch_parts(const TrainConfig& config, int64_t model_parameters);

/// The mean loss of rows [first, first + count) of a batch, as a graph.
using PartLoss = std::function<Tensor(int64_t first, int64_t count)>;

/// Forward and backward of a batch of `rows` rows in `parts` parts, shared out over the threads:
/// adds the gradients of `scale` times the batch's mean loss to `parameters`, and returns that mean
/// loss (not scaled, outside any graph). With several parts, each runs on one thread: threads meet
/// once a step instead of at every op, and each works in its own cache. The price is a set of
/// gradients for each part, which are summed in order afterwards; hooks of parameters
/// see the sums. Random masks are those of the whole batch. With several parts, the bits depend on
/// their number and not on the threads'. The first exception of a part is thrown on
/// in the caller.
Tensor backward_in_parts(const std::vector<Tensor>& parameters, int64_t rows, int64_t parts,
                         double scale, const PartLoss& loss);

}  // namespace ink
