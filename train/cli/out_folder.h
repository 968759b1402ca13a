// out_dir of a run: no other run uses it at the same time, and nothing in it is lost.
#pragma once

#include "train/cli/console.h"
#include "train/config.h"

namespace ink {

class OutFolder {
 public:
  /// Makes the folder, and locks it for as long as this lives. Throws if another process has locked
  /// it, if another run keeps the folder for itself, such as its ckpt, if a save would replace
  /// something that is not a checkpoint of inkling, or if `samples` is not a folder. Also throws
  /// if a new run (init_from is not resume) finds an older one, unless `overwrite` is set or the
  /// user has not `named` the folder. Does not change what is in the folder.
  OutFolder(const TrainConfig& config, bool named, bool overwrite);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  /// Throws if the run, which reads these files, would replace one of them or move it aside.
  void check_not_read(const char* option, const std::vector<std::filesystem::path>& files) const;

  /// Deletes the older run, or moves it aside. Call it when the new run is sure to begin.
  void make_room(Console& console);
  /// Locks the folder of this name anew, if the one that was locked was moved away or deleted.
  void keep_locked();

 private:
  void lock();
  void unlock();

  std::filesystem::path folder_;
  bool made_ = false;  // did the constructor make the folder?
  bool holds_old_run_ = false, overwrite_;
  int lock_ = -1;
};

/// Does the folder hold a checkpoint or the log of a run?
bool holds_run(const std::filesystem::path& folder);

/// Is a run writing in this folder now?
bool is_locked(const std::filesystem::path& out_dir);

/// Throws UsageError if the file that an option names would replace one of the run's in out_dir.
void check_not_of_run(const char* option, const std::filesystem::path& out_dir,
                      const std::filesystem::path& file);

/// Throws if the file is there and no page of a run: the user's own.
void check_is_report(const std::filesystem::path& file, const char* what_to_do);

}  // namespace ink
