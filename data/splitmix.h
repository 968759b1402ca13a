// SplitMix64 (Steele, Lea, Flood 2014): the random numbers of datasets and stories.
#pragma once

#include <cstdint>

namespace ink::splitmix {

inline constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;  // the step of its counter

/// Its finaliser: every bit of the result depends on every bit of x.
inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// Maps 64 random bits to [0, n) by the high half of a product; its bias is at most n / 2^64.
inline uint64_t below(uint64_t n, uint64_t bits) {
  __extension__ using Wide = unsigned __int128;  // no standard name yet
  return static_cast<uint64_t>(static_cast<Wide>(bits) * n >> 64);
}

/// Random numbers in a row: SplitMix64 from a state on.
class Stream {
 public:
  explicit Stream(uint64_t state) : state_(state) {}
  /// Uniform in [0, n), n > 0.
  uint64_t below(uint64_t n) { return splitmix::below(n, mix(state_ += kGamma)); }

 private:
  uint64_t state_;
};

}  // namespace ink::splitmix
