#include "train/cli/waiting.h"

#include <system_error>
#include <utility>

namespace ink {

using namespace std::chrono_literals;

Waiting::Waiting(Console& console, std::function<std::vector<Item>(double)> items)
    : console_(console), items_(std::move(items)) {
  if (!console_.has_live_line()) return;
  try {
    thread_ = std::thread([this] { show(); });
  } catch (const std::system_error&) {  // no more threads allowed: then nothing is shown
  }
}

Waiting::Waiting(Console& console, const std::string& what)
    : Waiting(console, [what](double seconds) {
        return std::vector<Item>{{what, 0}, {" ... " + clock_text(seconds), 1}};
      }) {}

Waiting::~Waiting() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Waiting::show() {
  std::unique_lock lock(mutex_);
  bool shown = false;
  while (!over_.wait_for(lock, shown ? 200ms : 500ms, [this] { return is_over_; })) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    console_.live(items_(passed.count()));
    shown = true;
  }
  if (shown) console_.clear_live();
}

}  // namespace ink
