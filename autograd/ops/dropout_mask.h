// Which elements dropout zeroes: element i of the whole batch if the i-th uniform number of 24 bits
// at a random position is below p. A pure function, so that no mask is ever stored and every kernel
// that drops elements of a tensor drops the same ones.
#pragma once

#include <cmath>

#include "autograd/context.h"
#include "autograd/philox.h"

namespace ink {

class DropoutMask {
 public:
  /// kept: the factor of what is not dropped, 1 / (1 - p).
  const double kept;

  DropoutMask(double p, const RandomPosition& at)
      : kept(1 / (1 - p)),
        key_(Philox::derive(at.seed, at.step, at.micro_batch)),
        call_(at.call),
        threshold_(static_cast<uint32_t>(std::ceil(p * 0x1p24))) {}

  /// The digits of elements 4 counter, 4 counter + 1, ... : four a counter.
  void fill_digits(uint32_t* digits, uint64_t counter, uint64_t counters) const {
    for (uint64_t k = 0; k < counters; ++k) {
      const auto words = Philox::at(key_, counter + k, call_);
      for (uint64_t j = 0; j < 4; ++j) digits[4 * k + j] = words[j] >> 8;
    }
  }
  bool drops(uint32_t digit) const { return digit < threshold_; }

 private:
  uint64_t key_, call_;
  uint32_t threshold_;
};

/// The index in the whole batch of the first element of a tensor of n elements, `rows` of them
/// along dimension 0.
inline int64_t first_of_batch(const RandomPosition& at, int64_t n, int64_t rows) {
  return static_cast<int64_t>(at.first_row) * (rows ? n / rows : n);
}

}  // namespace ink
