// Learning-rate schedules: pure functions of the step, so that a resumed run needs no state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

namespace ink {

struct TrainConfig;  // config.h

/// The learning rate of step 0, 1, 2, ...
using Schedule = std::function<double(int64_t step)>;

inline Schedule constant_lr(double lr) {
  return [lr](int64_t) { return lr; };
}

/// A schedule that rises linearly over warmup_iters steps to lr, and then is `rest`. All schedules
/// below do so.
template <class Rest>
Schedule warmed_up(double lr, int64_t warmup_iters, Rest rest) {
  return [=](int64_t step) {
    if (step >= warmup_iters) return static_cast<double>(rest(step));
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_iters + 1);
  };
}

inline Schedule warmup_constant(double lr, int64_t warmup_iters) {
  return warmed_up(lr, warmup_iters, constant_lr(lr));
}

/// A schedule that falls from lr at step `begin` to min_lr at step `end`, and stays there. Between
/// them it is min_lr + share(done) (lr - min_lr), where done goes from 0 to 1.
template <class Share>
Schedule falling(double lr, double min_lr, int64_t begin, int64_t end, Share share) {
  return [=](int64_t step) {
    if (step >= end) return min_lr;
    if (step < begin) return lr;
    const double done = static_cast<double>(step - begin) / static_cast<double>(end - begin);
    return min_lr + share(done) * (lr - min_lr);
  };
}

/// nanoGPT's schedule: after the warm-up it falls as half a cosine to min_lr at step
/// lr_decay_iters, and stays at min_lr.
inline Schedule warmup_cosine(double lr, double min_lr, int64_t warmup_iters,
                              int64_t lr_decay_iters) {
  const auto share = [](double done) { return 0.5 * (1 + std::cos(std::numbers::pi * done)); };
  return warmed_up(lr, warmup_iters, falling(lr, min_lr, warmup_iters, lr_decay_iters, share));
}

/// The same along a line.
inline Schedule warmup_linear(double lr, double min_lr, int64_t warmup_iters,
                              int64_t lr_decay_iters) {
  return warmed_up(
      lr, warmup_iters,
      falling(lr, min_lr, warmup_iters, lr_decay_iters, [](double done) { return 1 - done; }));
}

/// Warm-up, stable, decay (Hu et al. 2024): after the warm-up it stays at lr, and falls along a
/// line to min_lr over the last decay_fraction (0 to 1) of lr_decay_iters steps.
inline Schedule warmup_stable_decay(double lr, double min_lr, int64_t warmup_iters,
                                    int64_t lr_decay_iters, double decay_fraction) {
  const auto length =
      static_cast<int64_t>(std::llround(decay_fraction * static_cast<double>(lr_decay_iters)));
  const int64_t begin = std::max(warmup_iters, lr_decay_iters - length);
  return warmed_up(lr, warmup_iters, falling(lr, min_lr, begin, lr_decay_iters, [](double done) {
                     return 1 - done;
                   }));
}

// ---- by name

/// Makes a run's schedule.
using MakeSchedule = std::function<Schedule(const TrainConfig&)>;
/// From now on TrainConfig::schedule_name, and so --schedule, may be `name`. Call it before other
/// threads run. Throws if there is a schedule of that name.
void add_schedule(const std::string& name, MakeSchedule make);
/// "constant", "cosine", "linear", "wsd", and those that were added.
std::vector<std::string> schedule_names();

}  // namespace ink
