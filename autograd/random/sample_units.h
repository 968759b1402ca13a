// Probabilities as whole numbers of 2^-53. They add up exactly, in any order. So however threads
// share a row, the same number drawn finds the same element.
#pragma once

#include "autograd/base/context.h"
#include "autograd/base/device_function.h"
#include "autograd/random/philox.h"

namespace ink {

struct SampleUnits {
  static constexpr uint64_t kOne = uint64_t{1} << 53;
  static constexpr uint64_t kTooMany = 2 * kOne;

  /// A p that is no probability gives kTooMany. A p slightly above 1, from rounding, is accepted.
  template <class C>
  INK_DEVICE static uint64_t of(C p) {
    if (!(p >= C(0) && p <= C(1 + 1.0 / 64))) return kTooMany;
    return static_cast<uint64_t>(static_cast<double>(p) * 0x1p53);
  }
  /// The sum, or kTooMany.
  INK_DEVICE static uint64_t join(uint64_t a, uint64_t b) {
    return a + b < kTooMany ? a + b : kTooMany;
  }
  /// Is this the total of a row of probabilities, which may have been rounded to bf16?
  INK_DEVICE static bool are_whole(uint64_t total) {
    return total >= kOne - kOne / 64 && total <= kOne + kOne / 64;
  }
  /// A number in [0, 1), drawn for a row of the whole batch; key: of seed, step and micro-batch.
  INK_DEVICE static uint64_t draw(uint64_t key, uint64_t row, uint64_t call) {
    return Philox::derive(key, row, call) >> 11;
  }
};

}  // namespace ink
