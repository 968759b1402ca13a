// Which elements dropout zeroes: element i of the whole batch, if the i-th uniform number of 24
// bits at a random position is below p. This is a pure function. So no mask is ever stored, and all
// kernels that drop elements of a tensor drop the same ones.
#pragma once

#include <cmath>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "autograd/base/context.h"
#include "autograd/base/device_function.h"
#include "autograd/base/shape.h"
#include "autograd/base/shuffle.h"
#include "autograd/random/philox.h"

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

  /// The digits of elements 4 counter, 4 counter + 1, ...: four for each counter.
  void fill_digits(uint32_t* digits, uint64_t counter, uint64_t counters) const {
#ifdef __AVX512F__
    for (; counters >= 8; counters -= 8, counter += 8, digits += 32)
      eight_counters(digits, counter);
#endif
    for (uint64_t k = 0; k < counters; ++k) {
      const auto words = Philox::at(key_, counter + k, call_);
      for (uint64_t j = 0; j < 4; ++j) digits[4 * k + j] = words[j] >> 8;
    }
  }
  INK_DEVICE bool drops(uint32_t digit) const { return digit < threshold_; }

 private:
#ifdef __AVX512F__
  // Philox::at for eight counters, one in each 64-bit lane. A product takes the lower halves of two
  // lanes and fills both halves of a third, so nothing moves between lanes until all rounds are
  // done. It is twice as fast as the compiler's code for Philox::at.
  void eight_counters(uint32_t* digits, uint64_t counter) const {
    typedef uint64_t Lanes __attribute__((vector_size(64)));
    const auto product = [](uint64_t a, Lanes b) {
      return Lanes(_mm512_maskz_mul_epu32(0xff, __m512i(Lanes{} + a), __m512i(b)));
    };
    Lanes c0 = counter + Lanes{0, 1, 2, 3, 4, 5, 6, 7}, c1 = c0 >> 32;
    Lanes c2 = Lanes{} + call_, c3 = c2 >> 32;
    uint64_t k0 = key_, k1 = key_ >> 32;  // only the lower halves of keys and lanes matter
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const Lanes p0 = product(0xD2511F53, c0), p1 = product(0xCD9E8D57, c2);
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0;
    }
    constexpr uint64_t kLow = 0xffffffff;
    const auto pair = [](Lanes low, Lanes high) {  // as digits
      return (low & kLow) >> 8 | (high & kLow) >> 8 << 32;
    };
    const Lanes a = pair(c0, c1), b = pair(c2, c3);
    const Lanes in_order[] = {INK_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
                              INK_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)};
    std::memcpy(digits, in_order, sizeof in_order);
  }
#endif

  uint64_t key_, call_;
  uint32_t threshold_;
};

/// The index in the whole batch of the first element of a tensor with n elements and size `rows`
/// along dimension 0. For a part of a batch, dimension 0 may hold each row several times, such as
/// once for each position.
inline int64_t first_of_batch(const RandomPosition& at, int64_t n, int64_t rows) {
  const auto of_batch = at.rows ? static_cast<int64_t>(at.rows) : rows;
  return static_cast<int64_t>(at.first_row) * (of_batch ? n / of_batch : n);
}

/// Throws if dimension 0 of the shape does not hold the rows of this part of a batch, because the
/// part could then not draw the numbers of the whole batch.
inline void check_part(const char* op, const Shape& shape, const RandomPosition& at) {
  const int64_t first = shape.empty() ? 1 : shape[0];
  INK_CHECK(at.rows == 0 || first % static_cast<int64_t>(at.rows) == 0, op, ": dimension 0 of ",
            shape, " does not hold the ", at.rows,
            " rows of this part of a batch, so that its mask cannot be that of the whole batch; "
            "put the batch first, or take one part");
}

}  // namespace ink
