// How much memory training will need, before it starts.
#pragma once

#include <string>

#include "nn/gpt.h"
#include "train/config.h"

namespace ink {

/// Bytes of tensors at the moment of a step when there are most of them, the allocator's rounding
/// included. The process needs some 20 MB more.
struct MemoryEstimate {
  int64_t model = 0;        // parameters and the optimizer's moments
  int64_t gradients = 0;    // of parameters
  int64_t activations = 0;  // what forward keeps for backward, and what is being computed
  int64_t total() const { return model + gradients + activations; }
};

/// The least number of parameters such a model has: its matrices.
int64_t least_parameters(const GPTConfig& config);

/// Throws where `what` ("this model") needs more bytes than this process can have.
void check_memory(const std::string& what, int64_t bytes);

/// Linear in batch_size, block_size and n_layer. Within 10 % of what is measured; with several
/// parts of a batch side by side (data_parallel.h), less is used when their peaks do not coincide.
MemoryEstimate estimate_memory(const GPT& model, const TrainConfig& config);

}  // namespace ink
