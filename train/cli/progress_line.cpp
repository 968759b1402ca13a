#include "train/cli/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "train/report/numbers.h"

namespace ink {

std::vector<Item> progress_items(const Pace& pace, const Progress& progress) {
  std::vector<Item> items = {{fmt::format("step {:>5}", pace.step), 0},
                             {fmt::format("/{}", pace.max_iters), 3},
                             {fmt::format("  {}", loss_text(progress.loss, {})), 1}};
  if (progress.best_possible)
    items.push_back({fmt::format(" (best possible {})", fixed_number(*progress.best_possible)), 4});
  items.push_back({fmt::format("  lr {:.1e}", progress.lr), 6});
  items.push_back({"  norm " + fixed_number(progress.grad_norm, 2), 7});
  items.push_back({fmt::format("  {} tokens/s", count_text(pace.tokens_per_s)), 5});
  items.push_back({fmt::format("  {:.1f} ms", pace.ms), 8});
  items.push_back({fmt::format("  {} left", clock_text(pace.seconds_left)), 2});
  return items;
}

std::string loss_text(double loss, const std::optional<double>& best) {
  return "loss " + fixed_number(loss) +
         (best ? " (best possible " + fixed_number(*best) + ")" : "");
}

KeptLines::KeptLines(int64_t first_step, int64_t max_iters)
    : every_(std::max<int64_t>(max_iters / 20, 1)), last_(first_step) {}

bool KeptLines::keep(int64_t step, double seconds) {
  if (step - last_ < every_ && seconds - last_seconds_ < 60) return false;
  last_ = step;
  last_seconds_ = seconds;
  return true;
}

bool SaveTimes::is_due(double seconds) const { return seconds - last_ > (saved_ ? 600 : 60); }

void SaveTimes::saved(double seconds) {
  saved_ = true;
  last_ = seconds;
}

std::vector<Item> share_items(const std::string& what, double done, double done_at,
                              double seconds) {
  std::vector<Item> items = {{fmt::format("{} {:.0f} %", what, 100 * done), 0}};
  if (done > 0) {
    const double left = std::max(done_at / done - seconds, 0.0);
    items.push_back({fmt::format(", {} left", clock_text(left)), 1});
  }
  return items;
}

ShownShare::ShownShare(Console& console, const char* what, bool (*is_interrupted)())
    : is_interrupted_(is_interrupted), waiting_(console, [this, what](double seconds) {
        return share_items(what, done_, done_at_, seconds);
      }) {}

StopEvaluation ShownShare::stop() {
  return [this](double share) {
    if (share > done_) {
      done_at_ = seconds_since(start_);
      done_ = share;
    }
    return is_interrupted_ != nullptr && is_interrupted_();
  };
}

}  // namespace ink
