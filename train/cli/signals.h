// Signals that ask a command to stop (Ctrl-C, kill, a lost connection), or that end it.
#pragma once

#include <string>

namespace ink {

/// From now on the first of them is noted, and the second one ends the program at once. Those that
/// the caller ignores (nohup) stay ignored. Where standard error is a terminal, `of_stop` goes
/// there at the first Ctrl-C.
void watch_signals(const std::string& of_stop = "");

/// From now on the program says why it ends where a file that it has mapped is cut short.
void explain_cut_files();

/// The signal that was noted; 0: none.
int noted_signal();
inline bool is_interrupted() { return noted_signal() != 0; }

}  // namespace ink
