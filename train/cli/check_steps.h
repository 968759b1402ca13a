// train --check: the first steps with fused ops and with their definitions, side by side.
#pragma once

#include <cstdint>
#include <optional>

#include "train/cli/console.h"
#include "train/config.h"
#include "train/saved_run.h"

namespace ink {

/// Takes `steps` steps twice, from the run's seed and on its batches: with fused ops and composed,
/// each step from the same weights. Compares every op's output and its gradient, and the gradient
/// of every parameter. Prints a line a step. True if all agree up to rounding: within 1e-4 of a
/// tensor's largest element, 3e-4 for gradients, or 0.05 and 0.15 in bfloat16. Otherwise it prints
/// the first op where they part. saved: the run to go on with, if any. Writes no file. Holds the
/// activations of both runs in memory.
bool check_steps(const TrainConfig& config, const std::optional<SavedRun>& saved, int64_t steps,
                 Console& console);

}  // namespace ink
