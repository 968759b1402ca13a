// out_dir as a run takes it: nobody else's, and with nothing in it that would be lost.
#pragma once

#include "train/cli/console.h"
#include "train/config.h"

namespace ink {

class OutFolder {
 public:
  /// Makes the folder, and locks it for as long as this lives. Throws where another process has
  /// locked it, and where a save would replace what is no checkpoint of ours. Throws, too, where a
  /// new run (init_from scratch) finds an older one, unless `overwrite` lets that go or the user
  /// has not `named` the folder. Changes nothing that is there.
  OutFolder(const TrainConfig& config, bool named, bool overwrite);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  /// Deletes the older run, or moves it aside: to be called when the new one is sure to begin.
  void make_room(Console& console);

 private:
  void lock();
  void unlock();

  std::filesystem::path folder_;
  bool made_ = false;  // by us
  bool holds_old_run_ = false, overwrite_;
  int lock_ = -1;
};

/// Throws UsageError where the file of --profile would replace one of the run's own in out_dir.
void check_not_of_run(const std::filesystem::path& out_dir, const std::filesystem::path& profile);

}  // namespace ink
