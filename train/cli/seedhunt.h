// Finds a program's seed from a few of the numbers that it drew.
//
// PyTorch seeds its CPU generator with 32 bits, even if nobody called manual_seed. So the seed of
// any run is one of 2^32, and three or four printed numbers tell which one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ink {

/// What a printed number tells about the generator's output u behind it: u lies in the set
///   rotate_right(((u & mask) - first) * inverse, shift) <= last      (all modulo 2^32)
/// which is an interval where inverse is 1, and the numbers with one remainder otherwise.
struct OutputSet {
  uint32_t mask, first, inverse, shift, last;

  bool contains(uint32_t u) const;
  /// The fraction of all outputs that lie in it.
  double share() const;
};

/// The outputs behind a float of rand() that is printed as `text` with `digits` digits after the
/// point (1 to 9). Throws unless the text is a number in [0, 1] of no more digits.
OutputSet printed_rand(const std::string& text, int digits);
/// The outputs behind a value of randint(high), 2 <= high < 2^28. Throws unless value < high.
OutputSet drawn_randint(uint64_t value, uint64_t high);

struct SeedhuntOptions {
  uint64_t first = 0, count = uint64_t{1} << 32;    // the seeds to try
  std::function<void(double share_done)> progress;  // called now and then, by one thread
};

/// The seeds, in ascending order, for which outputs number skip, skip + 1, ... of the generator lie
/// in the given sets. It runs on all threads. A try costs about the arithmetic of seeding, plus
/// that of the twists before `skip`. skip <= 10^6.
std::vector<uint32_t> seedhunt(uint64_t skip, const std::vector<OutputSet>& outputs,
                               const SeedhuntOptions& options = {});

}  // namespace ink
