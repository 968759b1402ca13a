// How much memory training will need, before it starts.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/random/generator.h"
#include "nn/language_model.h"
#include "train/config.h"

namespace ink {

/// The peak of bytes in tensors during a step, including the allocator's rounding. The process
/// needs some 20 MB more.
struct MemoryEstimate {
  int64_t model = 0;        // parameters, the optimizer's moments, averages
  int64_t gradients = 0;    // of parameters
  int64_t activations = 0;  // saved for backward, or being computed
  int64_t total() const { return model + gradients + activations; }
};

/// The number of parameters in the matrices of a GPT: it has at least these.
int64_t least_parameters(const GPTConfig& config);

/// Throws if `what` ("this model") needs more bytes than this process can have.
void check_memory(const std::string& what, int64_t bytes,
                  const std::string& advice = "choose smaller sizes");

/// While it lives, this thread runs a model as a step of the config would, and nothing of that
/// stays: neither what the model draws nor what it writes into its buffers.
class Trial {
 public:
  Trial(const LanguageModel& model, const TrainConfig& config);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

 private:
  ContextGuard guard_;
  Generator generator_{0};
  std::vector<std::pair<Tensor, Tensor>> buffers_;
};

/// Bytes of the moments that the config's optimizer keeps of these parameters; tables: as in
/// ParameterGroup.
int64_t moment_bytes(const NamedTensors& parameters, const std::set<std::string>& tables,
                     const TrainConfig& config);

/// What of it a run keeps whatever its batch: weights, moments, an average, and gradients. No pass
/// is run for it, which would need most of that.
MemoryEstimate kept_memory(const LanguageModel& model, const TrainConfig& config);

/// Of any model, within 3 % of the measured peak, with any unit for matrix products and any number
/// of threads: by passes, and an update, of a few rows; gradients and buffers stay as they are.
/// With several parts of a batch side by side (batch_parts), a run may use less, because their
/// peaks need not coincide.
MemoryEstimate estimate_memory(const LanguageModel& model, const TrainConfig& config);

}  // namespace ink
