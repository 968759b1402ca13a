// out_dir as a run takes it: nobody else's, and with nothing in it that would be lost.
#pragma once

#include "train/cli/console.h"
#include "train/config.h"

namespace ink {

class OutFolder {
 public:
  /// Makes the folder and locks it for as long as this lives. Throws where another run has it, and
  /// where a save would replace what is no checkpoint of ours. A new run (init_from scratch) in the
  /// place of one that is there is an error, which says how far that came, unless `overwrite` says
  /// that it may go, or out_dir is only the default (not `named`). Touches nothing else.
  OutFolder(const TrainConfig& config, bool named, bool overwrite);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  /// Once all else is known to be right: the run that was there is deleted, or moved aside.
  void make_room(Console& console);

 private:
  void lock();
  void unlock();

  std::filesystem::path folder_;
  bool made_ = false;  // by us
  bool holds_old_run_ = false, overwrite_;
  int lock_ = -1;
};

}  // namespace ink
