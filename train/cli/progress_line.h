// The progress line of a training run, and which of these lines stay on a terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/cli/console.h"
#include "train/cli/waiting.h"
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

/// When a run saves, although no evaluation does: a minute after its start if it has no checkpoint
/// yet, and ten minutes after the last save.
class SaveTimes {
 public:
  explicit SaveTimes(bool saved) : saved_(saved) {}
  /// So many seconds after the run's start?
  bool is_due(double seconds) const;
  void saved(double seconds);

 private:
  bool saved_;
  double last_ = 0;
};

/// "validation 31 %, 0:12 left": the share that was done after `done_at` seconds, and what is left
/// after `seconds`.
std::vector<Item> share_items(const std::string& what, double done, double done_at, double seconds);

/// Shows, while it lives, how far an evaluation is, or other work, that is given stop().
class ShownShare {
 public:
  /// is_interrupted: asked before each batch.
  ShownShare(Console& console, const char* what, bool (*is_interrupted)() = nullptr);
  StopEvaluation stop();

 private:
  bool (*is_interrupted_)();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<double> done_ = 0, done_at_ = 0;
  Waiting waiting_;  // the last member: its thread looks at others
};

}  // namespace ink
