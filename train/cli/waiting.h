// What the program is doing while its user waits, on the terminal's live line.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "train/cli/console.h"

namespace ink {

/// Shows a text from half a second on, for as long as this lives, and then clears it. Does nothing
/// if the console is not a terminal.
class Waiting {
 public:
  /// items(seconds since the start) is called by a thread of its own.
  Waiting(Console& console, std::function<std::vector<Item>(double)> items);
  /// "reading data ... 0:03"
  Waiting(Console& console, const std::string& what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void show();

  Console& console_;
  std::function<std::vector<Item>(double)> items_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ink
