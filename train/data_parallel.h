// Parts of a batch side by side, on threads that share one model.
#pragma once

#include <functional>

#include "autograd/tensor.h"
#include "train/config.h"

namespace ink {

/// The number of parts of a batch: config.batch_parts. If that is 0, models of up to 2^22
/// parameters get one part for each thread, because their further sets of gradients cost little,
/// and larger models one part. There are never more parts than rows.
int64_t batch_parts(const TrainConfig& config, int64_t model_parameters);

/// The loss of rows [first, first + count) of a batch, as a graph. The losses of parts add up to
/// that of the batch: a sum over rows, not a mean.
using PartLoss = std::function<Tensor(int64_t first, int64_t count)>;

/// Runs forward and backward of a batch of `rows` rows in `parts` parts, which threads share. Adds
/// the gradients of `scale` (a number (), or undefined: 1) times the batch's loss to the leaves.
/// Returns the loss, not scaled and outside any graph. For a mean over targets, take the sum as the
/// loss and 1 divided by the number of targets as the scale; then it does not matter which part a
/// target is in.
///
/// With several parts, each runs on one thread. Threads then wait for each other once a step
/// instead of at every op, and each works in its own cache. The price is a set of gradients for
/// each part. They are summed in order afterwards, and hooks of leaves see the sums. While
/// observers are listed, the parts run one after another. With several parts, the bits depend on
/// their number and not on the number of threads. The first exception of a part is rethrown in the
/// caller.
///
/// Random masks are those of the whole batch. For that, dimension 0 of a masked tensor must hold
/// the part's rows, each once or several times; other sizes are refused. (A dimension 0 that means
/// something else, but is a multiple of the part's rows, is not noticed.) What draws from
/// default_generator(), such as randn_like, gets other numbers in each part, which depend on that
/// generator and the part's first row, and not on threads. ImitateTorch is refused, because it
/// draws in order.
Tensor backward_in_parts(int64_t rows, int64_t parts, const Tensor& scale, const PartLoss& loss);

}  // namespace ink
