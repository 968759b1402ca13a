#include "train/cli/signals.h"

#include <csignal>
#include <initializer_list>

namespace ink {
namespace {

volatile std::sig_atomic_t noted = 0;

void note(int signal) {
  noted = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void watch_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, note) == SIG_IGN) std::signal(signal, SIG_IGN);
}

int noted_signal() { return noted; }

}  // namespace ink
