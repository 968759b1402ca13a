#include "train/cli/signals.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <string_view>

namespace ink {
namespace {

volatile std::sig_atomic_t noted = 0;
std::string told_of_stop;  // before there is a signal

void note(int signal) {
  noted = signal;
  if (signal == SIGINT) std::signal(signal, SIG_DFL);
  const int before = errno;
  if (signal == SIGINT && !told_of_stop.empty()) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, told_of_stop.data(), told_of_stop.size());
  }
  errno = before;
}

// The system sends this where a file that is mapped into memory has been cut short. What reads it
// cannot go on, and only write() may be called here; then the signal ends the program.
void tell_of_cut_file(int signal) {
  constexpr std::string_view text =
      "inkling: a file of data was cut short while it was read (SIGBUS)\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  std::signal(signal, SIG_DFL);
}

}  // namespace

void explain_cut_files() {
  if (const auto before = std::signal(SIGBUS, tell_of_cut_file); before != SIG_DFL)
    std::signal(SIGBUS, before);  // a sanitizer's
}

void watch_signals(const std::string& of_stop) {
  if (::isatty(STDERR_FILENO) != 0) told_of_stop = of_stop;
  // The last three are those of clusters, such as Slurm's --signal=USR1@90.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU})
    if (std::signal(signal, note) == SIG_IGN) std::signal(signal, SIG_IGN);
}

int noted_signal() { return noted; }

}  // namespace ink
