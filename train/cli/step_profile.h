// train --profile: where the time of some steps goes.
#pragma once

#include <filesystem>
#include <memory>

#include "autograd/inspect/profiler.h"
#include "train/cli/console.h"
#include "train/flow/flow.h"
#include "train/trainer.h"

namespace ink {

/// A trace of three steps, with their modules, and a table of the ten steps after them. The first
/// two steps are left out, because they allocate. After that, steps run as without it.
class StepProfile {
 public:
  /// Throws if the file of the trace is not writable. Without a file it does nothing.
  explicit StepProfile(std::filesystem::path file);

  void step(Trainer& trainer);
  /// Are there results that were not yet shown?
  bool is_done() const { return !file_.empty() && seen_ >= kWarmUp + kTraced + kMeasured; }
  /// Writes the trace and shows the table, of as many steps as there were, once.
  void finish(Console& console, const TrainConfig& config);

 private:
  class Modules;
  static constexpr int64_t kWarmUp = 2, kTraced = 3, kMeasured = 10;  // steps
  std::filesystem::path file_;
  Profiler trace_, table_;
  std::shared_ptr<Modules> modules_;
  int64_t seen_ = 0;
};

}  // namespace ink
