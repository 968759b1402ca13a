// How many parts a batch has.
#pragma once

#include "train/config.h"
#include "train/parallel/parts.h"

namespace ink {

/// The number of parts of a batch: config.batch_parts. If that is 0, models of up to 2^22
/// parameters get one part for each thread, because their further sets of gradients cost little,
/// and larger models one part. There are never more parts than rows.
int64_t batch_parts(const TrainConfig& config, int64_t model_parameters);

}  // namespace ink
