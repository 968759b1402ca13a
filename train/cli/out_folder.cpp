#include "train/cli/out_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/checkpoint.h"
#include "train/cli/command_line.h"
#include "train/cli/sample_files.h"
#include "train/report/metrics.h"
#include "train/report/numbers.h"
#include "train/report/probe.h"
#include "train/report/report.h"
#include "train/report/run_data.h"
#include "train/saved_run.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";
constexpr std::array kCheckpoints = {kLastCheckpoint, kBestCheckpoint};

// The files of a report, and what each begins with if inkling wrote it.
struct ReportFile {
  const char *name, *mark;
};
constexpr std::array<ReportFile, 3> kReportFiles = {{{kRunFile, "\"program\": \"inkling"},
                                                     {kProbesFile, "{\"step\":"},
                                                     {kReportFile, kReportMark}}};

bool is_ours(const fs::path& file, const char* mark) {
  if (!fs::is_regular_file(file)) return false;
  std::string begin(200, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), std::ssize(begin));
  return in.gcount() == 0 || begin.find(mark) != std::string::npos;
}

void check_report_file(const fs::path& file, const char* mark, const char* what_to_do) {
  INK_CHECK(!fs::exists(fs::symlink_status(file)) || is_ours(file, mark), file.string(),
            ": expected a file that inkling wrote, because the report of the run goes there; move "
            "it away, or ",
            what_to_do);
}

void check_report_files(const fs::path& folder) {
  for (const auto& [name, mark] : kReportFiles)
    check_report_file(folder / name, mark, "leave out the report with --report off");
}

// "a run after step 500 of 5000, trained on ...", as far as its checkpoint can be read; and how it
// can be used.
struct OldRun {
  bool is_finished = false, can_go_on = true;
  std::string text = "", data = "";  // data: what has to be named again
};
OldRun describe_run(const fs::path& folder) {
  try {
    const SavedRun run = load_run_to_resume(folder, Parts::model);
    const bool finished = run.step >= run.config.max_iters;
    const std::string what = finished ? fmt::format("a finished run of {} steps", run.step)
                                      : fmt::format("a run after step {} of {}", run.step,
                                                    run.config.max_iters),
                      loss = run.best_val_loss
                                 ? ", best validation loss " + fixed_number(*run.best_val_loss)
                                 : "";
    return {finished, true,
            fmt::format("{}, trained on {}{}", what, printable(run.dataset, 200), loss),
            data_typed(run.config)};
  } catch (const NotDamaged&) {
    return {false, false, "a run of another program, with which this one cannot go on"};
  } catch (const Error&) {
    return {false, false,
            checkpoint_exists(folder, checkpoint_to_resume(folder))
                ? "a run without a whole checkpoint, which cannot go on"
                : "a run that ended before its first checkpoint, and cannot go on"};
  }
}

// A command stands at the end of its line, so that it can be copied.
std::string refusal(const fs::path& folder) {
  const OldRun old = describe_run(folder);
  const std::string in = " " + option_typed("--out_dir", folder.string());
  std::string text = fmt::format("{} holds {}.", folder.string(), old.text);
  const auto add = [&](const char* what, const std::string& command) {
    text += fmt::format("\n{}: {}{}", what, typed(command), in);
    if (command != "sample") text += old.data;
  };
  if (old.can_go_on && old.is_finished) {
    add("To let it write", "sample");
    add("To train it longer", "train --init_from resume --max_iters MORE");
  } else if (old.can_go_on) {
    add("To go on with it", "train --init_from resume");
  }
  return text + "\nTo start anew, choose another --out_dir, or delete that run with --overwrite";
}

// The first of out.1, out.2, ... that does not exist.
fs::path place_aside(const fs::path& folder) {
  for (int i = 1;; ++i) {
    const fs::path aside = folder.string() + "." + std::to_string(i);
    if (!fs::exists(fs::symlink_status(aside))) return aside;
  }
}

// A path from a folder on; it begins with ".." where it is not in it. What is wrong with a name is
// said where it is opened.
fs::path within(const fs::path& folder, const fs::path& file) {
  std::error_code ignored;
  const auto whole = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  };
  return whole(file).lexically_relative(whole(folder));
}

// Is it a file or folder that a run in out_dir keeps for itself, or in such a folder?
bool is_of_run(const fs::path& out_dir, const fs::path& file) {
  const fs::path path = within(out_dir, file);
  const std::string first = path.empty() ? "" : path.begin()->string();
  bool taken = first == kLock || first == kMetricsFile || first == kSamples;
  for (const ReportFile& own : kReportFiles) taken = taken || first == own.name;
  for (const std::string name : kCheckpoints)
    taken = taken || first == name || first == name + ".prev" || first == name + ".tmp";
  return taken;
}

void delete_run(const fs::path& folder) {
  for (const char* name : kCheckpoints) delete_checkpoint(folder, name);
  // Anything else of this name is not inkling's.
  if (fs::is_regular_file(folder / kMetricsFile)) fs::remove(folder / kMetricsFile);
  for (const auto& [name, mark] : kReportFiles)
    if (is_ours(folder / name, mark)) fs::remove(folder / name);
  remove_samples(folder, 0);
}

}  // namespace

bool holds_run(const fs::path& folder) {
  for (const char* name : kCheckpoints)
    if (checkpoint_exists(folder, name)) return true;
  return file_operation([&] { return fs::exists(folder / kMetricsFile); });
}

void check_is_report(const fs::path& file, const char* what_to_do) {
  file_operation([&] { check_report_file(file, kReportMark, what_to_do); });
}

void check_not_of_run(const char* option, const fs::path& out_dir, const fs::path& file) {
  if (file.empty() || file == "-") return;
  const Place place = place_of(out_dir);  // may be of a checkpoint alone
  const fs::path path = within(place.out_dir / place.name, file);
  const bool in_checkpoint = !path.empty() && *path.begin() != "..";
  if (in_checkpoint || is_of_run(out_dir, file))
    throw UsageError(std::string(option) + ": the run keeps a file or folder of its own at " +
                     file.string() + "; choose another name");
}

bool is_locked(const fs::path& out_dir) {
  const int lock = ::open((out_dir / kLock).c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (lock < 0) return false;
  std::array<char, 32> owner{};
  const bool named = ::pread(lock, owner.data(), owner.size() - 1, 0) > 0;
  const int process = named ? std::atoi(owner.data()) : 0;
  // The lock is tried only if that process lives, so that no run that starts now finds it taken.
  const bool lives = process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
  const bool locked = lives && ::flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(lock);
  return locked;
}

OutFolder::OutFolder(const TrainConfig& config, bool named, bool overwrite)
    : folder_((fs::path(config.out_dir) / "").parent_path()), overwrite_(overwrite) {
  const fs::path parent = folder_.has_parent_path() ? folder_.parent_path() : ".";
  if (is_of_run(parent, folder_) && holds_run(parent))
    throw UsageError("--out_dir: " + folder_.string() + " is of the run in " + parent.string() +
                     "; name that folder, or another");
  lock();
  try {
    for (const char* name : kCheckpoints) check_replaceable(folder_, name);
    if (config.report == "on") file_operation([&] { check_report_files(folder_); });
    check_sample_folder(folder_);
    holds_old_run_ = config.init_from != "resume" && holds_run(folder_);
    if (holds_old_run_ && named && !overwrite) throw Error(refusal(folder_));
    if (holds_old_run_ && overwrite)
      for (const char* name : kCheckpoints) check_deletable(folder_, name);
  } catch (...) {
    unlock();
    throw;
  }
}

OutFolder::~OutFolder() { unlock(); }

void OutFolder::check_not_read(const char* option, const std::vector<fs::path>& files) const {
  for (const fs::path& file : files) {
    const fs::path path = within(folder_, file);
    const std::string begin =
        fmt::format("{}: {} is in {}", option, file.string(), folder_.string());
    if (is_of_run(folder_, file))
      throw UsageError(begin + ", where the run would replace it; copy it to another place");
    if (holds_old_run_ && !overwrite_ && !path.empty() && *path.begin() != "..")
      throw UsageError(begin +
                       ", which would be moved aside with the run that it holds; move the "
                       "file elsewhere, or name another --out_dir");
  }
}

void OutFolder::make_room(Console& console) {
  if (holds_old_run_ && overwrite_) {
    file_operation([&] { delete_run(folder_); });
  } else if (holds_old_run_) {
    // A link stays, and so does the disk that it leads to.
    const fs::path place = fs::is_symlink(folder_) ? fs::canonical(folder_) : folder_,
                   aside = place_aside(place);
    file_operation([&] { fs::rename(place, aside), fs::create_directory(place); });
    ::close(std::exchange(lock_, -1));
    console.paragraph(fmt::format("The run that was in {} is in {} now: {}.", folder_.string(),
                                  aside.string(), describe_run(aside).text));
    lock();
  }
  made_ = false;
}

void OutFolder::keep_locked() {
  struct stat own = {}, named = {};
  const bool is_there = ::stat((folder_ / kLock).c_str(), &named) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) return;  // it may be there all the same
  if (is_there && ::fstat(lock_, &own) == 0 && own.st_dev == named.st_dev &&
      own.st_ino == named.st_ino)
    return;
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  lock();
  made_ = false;
}

void OutFolder::lock() {
  made_ = with_prefix("--out_dir", [&] {
    INK_CHECK(file_operation([&] { return !fs::is_symlink(folder_) || fs::exists(folder_); }),
              folder_.string(), ": expected a folder, got a link to nothing");
    INK_CHECK(file_operation([&] { return !fs::exists(folder_) || fs::is_directory(folder_); }),
              folder_.string(), ": expected a folder, got a file");
    return file_operation([&] { return fs::create_directories(folder_); });
  });
  const fs::path file = folder_ / kLock;
  try {
    lock_ = open_file(file, O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW);
  } catch (const Error& error) {  // such as of a disk that is read-only
    detail::fail({"--out_dir: ", error.what(),
                  holds_run(folder_) ? "; go on with a copy of the folder, or begin a new run with "
                                       "its weights: --init_from " +
                                           for_shell(folder_.string()) + " --out_dir NEW"
                                     : "; name another folder"});
  }
  if (const int reason = lock_alone(lock_, folder_); reason != 0) {
    std::array<char, 32> owner{};
    const ssize_t got = ::pread(lock_, owner.data(), owner.size() - 1, 0);
    made_ = false;
    unlock();
    INK_CHECK(reason == EWOULDBLOCK, file.string(), ": cannot lock: ", std::strerror(reason));
    detail::fail({folder_.string(), ": another run is writing there: process ",
                  got > 0 ? printable(owner.data()) : "unknown",
                  "; wait for its end, or choose another --out_dir"});
  }
  const std::string owner = std::to_string(::getpid());
  [[maybe_unused]] const bool written =  // for people only
      ::ftruncate(lock_, 0) == 0 && ::pwrite(lock_, owner.data(), owner.size(), 0) > 0;
}

// Also removes the folder, if the constructor made it and it is still empty.
void OutFolder::unlock() {
  if (lock_ < 0) return;
  std::error_code ignored;
  if (made_) {
    fs::remove(folder_ / kLock, ignored);
    fs::remove(folder_, ignored);
  }
  ::close(std::exchange(lock_, -1));
}

}  // namespace ink
