// Learning-rate schedules: pure functions of the step, so that a resumed run needs no state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>

namespace ink {

/// The learning rate of step 0, 1, 2, ...
using Schedule = std::function<double(int64_t step)>;

inline Schedule constant_lr(double lr) {
  return [lr](int64_t) { return lr; };
}

/// nanoGPT's schedule: it rises linearly over warmup_iters steps, falls as half a cosine to min_lr
/// at step lr_decay_iters, and stays at min_lr.
inline Schedule warmup_cosine(double lr, double min_lr, int64_t warmup_iters,
                              int64_t lr_decay_iters) {
  return [=](int64_t step) {
    if (step < warmup_iters)
      return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_iters + 1);
    if (step >= lr_decay_iters) return min_lr;
    const double done = static_cast<double>(step - warmup_iters) /
                        static_cast<double>(lr_decay_iters - warmup_iters);
    return min_lr + 0.5 * (1 + std::cos(std::numbers::pi * done)) * (lr - min_lr);
  };
}

}  // namespace ink
