// Signals that ask a command to stop (Ctrl-C, kill, a lost connection), or that end it.
#pragma once

#include <string>

namespace ink {

/// From now on they are noted, and a second Ctrl-C ends the program at once. The others come twice
/// by themselves: Slurm sends SIGTERM to a step, and then to its job. Those that the caller ignores
/// (nohup) stay ignored. Where standard error is a terminal, `of_stop` goes there at the first
/// Ctrl-C.
void watch_signals(const std::string& of_stop = "");

/// From now on the program says why it ends where a file that it has mapped is cut short.
void explain_cut_files();

/// The signal that was noted; 0: none.
int noted_signal();
inline bool is_interrupted() { return noted_signal() != 0; }

}  // namespace ink
