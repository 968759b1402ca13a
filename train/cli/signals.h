// Signals that ask a command to stop: Ctrl-C, kill, a lost connection.
#pragma once

namespace ink {

/// From now on the first of them is noted, and the second one ends the program at once. Those that
/// the caller ignores (nohup) stay ignored.
void watch_signals();

/// The signal that was noted; 0: none.
int noted_signal();
inline bool is_interrupted() { return noted_signal() != 0; }

}  // namespace ink
