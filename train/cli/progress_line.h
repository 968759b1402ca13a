// The progress line of a training run, and which of these lines stay on a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/cli/console.h"
#include "train/trainer.h"

namespace ink {

/// Where a run is, how fast, and how long it will still take.
struct Pace {
  int64_t step = 0, max_iters = 0;
  double tokens_per_s = 0, ms = 0, seconds_left = 0;
};

/// The step, the loss and the time left stay the longest.
std::vector<Item> progress_items(const Pace& pace, const Progress& progress);

/// "loss 0.5038 (best possible 0.3210)"
std::string loss_text(double loss, const std::optional<double>& best);

/// A line stays after a twentieth of the steps or after a minute, whichever is first.
class KeptLines {
 public:
  KeptLines(int64_t first_step, int64_t max_iters);
  /// Does the line of this step, so many seconds after the run's start, stay?
  bool keep(int64_t step, double seconds);

 private:
  int64_t every_, last_;
  double last_seconds_ = 0;
};

/// "validation 31 %, 0:12 left": the share that was done after `done_at` seconds, and what is left
/// after `seconds`.
std::vector<Item> share_items(const std::string& what, double done, double done_at, double seconds);

}  // namespace ink
