// Philox4x32-10: random numbers as a pure function of (key, counter).
#pragma once

#include <array>
#include <cstdint>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"

namespace ink {

/// The counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
/// as 1, 2, 3" (SC 2011). There is no state: any thread, on any device, computes the numbers of any
/// element in any order.
struct Philox {
  /// The four u32 at a 128-bit counter (lo holds its low half) under a 64-bit key.
  INK_DEVICE static constexpr std::array<uint32_t, 4> at(uint64_t key, uint64_t lo,
                                                         uint64_t hi = 0) {
    uint32_t c0 = low(lo), c1 = high(lo), c2 = low(hi), c3 = high(hi);
    uint32_t k0 = low(key), k1 = high(key);
#ifdef __CUDACC__
#pragma unroll
#else
#pragma GCC unroll 10  // straight-line code, so that a loop over counters becomes vector code
#endif
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = high(p1) ^ c1 ^ k0;
      c1 = low(p1);
      c2 = high(p0) ^ c3 ^ k1;
      c3 = low(p0);
      k0 += 0x9E3779B9;  // the golden ratio's fraction, so that no two rounds share a key
      k1 += 0xBB67AE85;  // sqrt(3) - 1
    }
    return {c0, c1, c2, c3};
  }

  /// A key for a stream of its own, from a seed and the numbers that name the stream (such as a
  /// step and a call).
  INK_DEVICE static constexpr uint64_t derive(uint64_t seed, uint64_t a, uint64_t b = 0) {
    const auto words = at(seed, a, b);
    return uint64_t{words[1]} << 32 | words[0];
  }

  /// A u32 as a float in [0, 1): its 24 upper bits, all exactly representable.
  static constexpr float uniform(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

 private:
  INK_DEVICE static constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  INK_DEVICE static constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
};

}  // namespace ink
