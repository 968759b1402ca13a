// Bench: measures a training step on random tokens, with everything that `train` does in a step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/inspect/machine.h"
#include "autograd/inspect/profiler.h"
#include "train/config.h"
#include "train/trainer.h"

namespace ink {

/// What to measure. Every step has the same batch, and the learning rate is constant.
struct BenchSetup {
  std::string name;
  TrainConfig config;
  int64_t vocab_size = 0;
  int64_t steps = 0;           // timed ones, after two to warm up; 0: as many as take ten seconds
  int64_t profile_steps = -1;  // further ones, under the profiler; -1: a quarter of `steps`
  /// A safetensors file with the model's state_dict, and the batch: x and y (B, T) i64. Empty: the
  /// model is drawn from the seed, and so are the tokens.
  std::string weights;
  /// Called between timed steps, with the share of them that is done.
  std::function<void(double done)> on_share = {};
};

/// The names of all setups, and the setup of a name. Throws if there is none of that name.
std::vector<std::string> bench_names();
BenchSetup bench_setup(const std::string& name);

/// FLOPs of a step's matrix products, forward and twice that for backward. A multiplication and an
/// addition are two FLOPs.
struct StepFlops {
  double weights = 0;    // of GPT: 6 x (elements of weights that multiply) x tokens
  double attention = 0;  // of GPT: 6 L B T (T + 1) C: queries x keys, weights x values, causal
  double total() const { return weights + attention; }
};
/// Counted in a pass of one row. The model stays as it is.
StepFlops step_flops(const LanguageModel& model, const TrainConfig& config);

/// What was measured. Times in milliseconds, sizes in bytes.
struct BenchResult {
  BenchSetup setup;
  int64_t parameters = 0;
  double start = 0;            // from the call to the end of the first step
  std::vector<double> times;   // of each step
  std::vector<double> losses;  // of each step, including those to warm up
  StepFlops flops;
  MemoryEstimate estimate;
  int64_t allocator_peak = 0;   // in use at a time, including the allocator's rounding
  int64_t allocator_held = 0;   // in use, or kept for reuse
  int64_t process_peak = 0;     // resident, of the whole process so far
  int64_t raw_allocations = 0;  // calls to the system's allocator in the timed steps
  double page_faults = 0;       // per timed step, in the whole process
  std::vector<ProfileRow> rows;
  int64_t profiled = 0;  // the number of profiled steps, with batch_parts 1

  double median() const;
  double best() const;
  double tokens_per_second() const;  // by the median
};

BenchResult run_bench(const BenchSetup& setup);

}  // namespace ink
