// Parts of a batch side by side: threads that share one model.
#pragma once

#include <functional>

#include "autograd/tensor.h"
#include "train/config.h"

namespace ink {

/// In how many parts a batch is worked on: config.batch_parts, or, where that is 0, one for each
/// thread for models of up to 2^22 parameters, whose further sets of gradients cost little, and one
/// for larger models. Never more than the batch has rows.
int64_t batch_parts(const TrainConfig& config, int64_t model_parameters);

/// The loss of rows [first, first + count) of a batch, as a graph. The losses of parts add up to
/// that of the batch: a sum over rows, not a mean.
using PartLoss = std::function<Tensor(int64_t first, int64_t count)>;

/// Forward and backward of a batch of `rows` rows in `parts` parts, shared out over the threads:
/// adds the gradients of `scale` (a number (), or undefined: 1) times the batch's loss to the
/// leaves and returns that loss (not scaled, outside any graph). A mean over targets is a sum with
/// 1 divided by their number as its scale; then it does not matter which part they are in.
///
/// With several parts, each runs on one thread: threads meet once a step instead of at every op,
/// and each works in its own cache. The price is a set of gradients for each part, which are summed
/// in order afterwards; hooks of leaves see the sums. Random masks are those of the whole batch,
/// because dimension 0 of what is masked holds the part's rows, each once or several times; a size
/// that cannot is refused, and so is ImitateTorch, which draws in order. (A dimension 0 that is
/// something else and happens to be a multiple of the part's rows is not found.) While observers
/// look on, the parts run one after another. With several parts, the bits depend on their number
/// and not on the threads'. The first exception of a part is thrown on in the caller.
Tensor backward_in_parts(int64_t rows, int64_t parts, const Tensor& scale, const PartLoss& loss);

}  // namespace ink
