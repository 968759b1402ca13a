// How much memory training will need, before it starts.
#pragma once

#include <string>

#include "nn/gpt.h"
#include "train/config.h"

namespace ink {

/// The peak of bytes in tensors during a step, including the allocator's rounding. The process
/// needs some 20 MB more.
struct MemoryEstimate {
  int64_t model = 0;        // parameters and the optimizer's moments
  int64_t gradients = 0;    // of parameters
  int64_t activations = 0;  // saved for backward, or being computed
  int64_t total() const { return model + gradients + activations; }
};

/// The number of parameters in the matrices of such a model: it has at least these.
int64_t least_parameters(const GPTConfig& config);

/// Throws if `what` ("this model") needs more bytes than this process can have.
void check_memory(const std::string& what, int64_t bytes);

/// Within 3 % of the measured peak, with any unit for matrix products and any number of threads.
/// With several parts of a batch side by side (data_parallel.h), a run may use less, because their
/// peaks need not coincide.
MemoryEstimate estimate_memory(const GPT& model, const TrainConfig& config);

}  // namespace ink
