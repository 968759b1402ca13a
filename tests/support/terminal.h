// Runs the program under test on a terminal of its own, and reads what that shows.
#pragma once

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/run_program.h"

namespace ink {

/// A line that a terminal showed. A live one was replaced by the next.
struct Shown {
  std::string text;  // without colours
  bool live;
};

/// Can terminals be made here? A bare system in a folder may have none.
inline bool has_terminals() {
  int ends[2] = {-1, -1};
  if (openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) != 0) return false;
  close(ends[0]), close(ends[1]);
  return true;
}

/// What a line for the shell writes, in which "$INKLING_PROGRAM" is the program under test, to a
/// terminal of so many columns; 0: it does not know its width.
inline std::string written_to_terminal(const std::string& line, unsigned short columns) {
  setenv("INKLING_PROGRAM", program_path().c_str(), 1);
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  INK_CHECK(child >= 0, "cannot make a terminal");
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  std::string all;
  char bytes[4096];
  for (ssize_t got = 0; (got = read(terminal, bytes, sizeof bytes)) > 0;)
    all.append(bytes, static_cast<size_t>(got));
  close(terminal);
  waitpid(child, nullptr, 0);
  return all;
}

/// What such a terminal shows of it.
inline std::vector<Shown> run_on_terminal(const std::string& line, unsigned short columns) {
  std::string all = written_to_terminal(line, columns);
  all = std::regex_replace(all, std::regex("\033\\[[0-9;]*m"), "");
  std::vector<Shown> shown;
  std::string text;
  for (size_t at = 0; at < all.size(); ++at) {
    const bool ends = all[at] == '\n', cleared = all.compare(at, 4, "\r\033[K") == 0;
    if (ends || cleared) shown.push_back({std::exchange(text, ""), cleared});
    if (cleared) at += 3;
    if (!ends && !cleared && all[at] != '\r') text += all[at];
  }
  return shown;
}

}  // namespace ink
