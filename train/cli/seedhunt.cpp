// The search tries 192 seeds at a time, one in each vector lane. The generator is the linear
// recurrence
//   w[j] = w[j - 227] ^ mix(w[j - 624], w[j - 623]),   j >= 624
// over the 624 words that seeding makes. Output number t is w[624 + t], tempered. Of both parts,
// only the words on which the wanted outputs depend are kept.
#include "train/cli/seedhunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/io/foreign.h"
#include "autograd/random/generator.h"

namespace ink {

// ---- what a printed number tells

namespace {

// Works on a number and on a vector of them: the least of what OutputSet's definition compares.
// (In place, because how a vector is returned depends on the target processor.)
template <class U>
inline void rank(const OutputSet& set, U& u) {
  u = ((u & set.mask) - set.first) * set.inverse;
  u = u >> set.shift | u << ((32 - set.shift) & 31);
}

std::string printed(uint32_t bits, int digits) {
  return fmt::format("{:.{}f}", bits * 0x1p-24, digits);
}

}  // namespace

bool OutputSet::contains(uint32_t u) const {
  rank(*this, u);
  return u <= last;
}

double OutputSet::share() const { return (last + 1.0) / (mask + 1.0); }

OutputSet printed_rand(const std::string& text, int digits) {
  INK_CHECK(digits >= 1 && digits <= 9, "seedhunt: expected 1 to 9 digits, got ", digits);
  const double value = parse_number(text).value_or(2);
  const size_t point = text.find('.');
  const bool decimal = text.find_first_not_of("0123456789.") == std::string::npos;
  INK_CHECK(decimal && value <= 1, "seedhunt: expected a number in [0, 1] as rand prints it, got '",
            text, "'");
  INK_CHECK(point == std::string::npos || text.size() - point - 1 <= static_cast<size_t>(digits),
            "seedhunt: ", text, " has more than ", digits, " digits; say how many were printed");
  const std::string padded = fmt::format("{:.{}f}", value, digits);
  // The 24-bit fractions that print so are neighbours, or there are none.
  constexpr int64_t kEnd = 1 << 24;
  const double half = 0.5 * std::pow(10.0, -digits);
  const auto clamped = [&](double x) {
    return std::clamp(static_cast<int64_t>(x * kEnd), int64_t{0}, kEnd - 1);
  };
  int64_t low = clamped(value - half - 0x1p-23), high = clamped(value + half + 0x1p-23);
  while (low <= high && printed(static_cast<uint32_t>(low), digits) != padded) ++low;
  while (low <= high && printed(static_cast<uint32_t>(high), digits) != padded) --high;
  INK_CHECK(low <= high, "seedhunt: no float of rand prints as ", padded);
  return {kEnd - 1, static_cast<uint32_t>(low), 1, 0, static_cast<uint32_t>(high - low)};
}

// u % high == value. Let high = 2^shift d with d odd. Multiplying by d's inverse modulo 2^32 and
// rotating divides the multiples of high by it, and takes all other numbers beyond the largest
// quotient. Granlund and Montgomery 1994, section 9.
OutputSet drawn_randint(uint64_t value, uint64_t high) {
  INK_CHECK(high >= 2 && high < 1u << 28, "seedhunt: expected randint(HIGH) with HIGH from 2 to ",
            (1u << 28) - 1, ", got ", high);
  INK_CHECK(value < high, "seedhunt: expected values of randint(", high, "), got ", value);
  const auto shift = static_cast<uint32_t>(std::countr_zero(high));
  const auto odd = static_cast<uint32_t>(high >> shift), v = static_cast<uint32_t>(value);
  uint32_t inverse = odd;  // right in 3 bits; each Newton step doubles them
  for (int i = 0; i < 4; ++i) inverse *= 2 - odd * inverse;
  return {~uint32_t{0}, v, inverse, shift, (~uint32_t{0} - v) / static_cast<uint32_t>(high)};
}

// ---- the search

namespace {

constexpr uint64_t kState = 624, kNear = 227;
constexpr int kLanes = 16, kVectors = 12, kBatch = kLanes * kVectors;
using Vector = uint32_t __attribute__((vector_size(4 * kLanes)));

/// One word for each seed of a batch. Twelve vectors, because a multiplication takes ten cycles and
/// one can start every two.
struct Words {
  Vector v[kVectors];
};

/// How many outputs to test at first, so that few seeds pass, and the words that these depend on,
/// in ascending order.
struct Plan {
  uint64_t tested = 0;
  std::vector<uint32_t> seeded;    // below 624
  std::vector<uint64_t> computed;  // from 624

  Plan(uint64_t skip, const std::vector<OutputSet>& outputs) {
    for (double passing = 1; tested < outputs.size() && passing > 2e-4; ++tested)
      passing *= outputs[tested].share();
    std::vector<bool> needed(kState + skip + tested);
    std::fill(needed.end() - static_cast<int64_t>(tested), needed.end(), true);
    for (uint64_t j = needed.size(); j-- > kState;) {
      if (needed[j]) needed[j - kNear] = needed[j - kState] = needed[j - kState + 1] = true;
    }
    for (uint64_t j = 0; j < needed.size(); ++j) {
      if (!needed[j]) continue;
      if (j < kState) seeded.push_back(static_cast<uint32_t>(j));
      if (j >= kState) computed.push_back(j);
    }
  }
};

/// Tries batches of seeds; one for each thread.
class Hunter {
 public:
  Hunter(const Plan& plan, uint64_t skip, const std::vector<OutputSet>& outputs)
      : plan_(plan), skip_(skip), outputs_(outputs), words_(kState) {}

  /// Adds those of the 192 seeds from `first` on that fit and lie below `end`.
  void try_batch(uint64_t first, uint64_t end, std::vector<uint32_t>& found) {
    seed(static_cast<uint32_t>(first));
    for (const uint64_t j : plan_.computed) twist(j);
    test();
    for (int i = 0; any_ && i < kBatch; ++i) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      if (fits_.v[i / kLanes][i % kLanes] && seed < end && fits(static_cast<uint32_t>(seed)))
        found.push_back(static_cast<uint32_t>(seed));
    }
  }

 private:
  // All of the outputs, one by one: for the few seeds that pass the vectors' test.
  bool fits(uint32_t seed) const {
    Generator g(seed);
    g.skip(skip_);
    return std::all_of(outputs_.begin(), outputs_.end(),
                       [&](const OutputSet& set) { return set.contains(g.random()); });
  }

  Words& word(uint64_t j) { return words_[j % kState]; }  // 624 of them are enough at any time

  // init_genrand of mt19937. Almost all of the time is spent here.
  void seed(uint32_t first) {
    Vector x[kVectors] = {};
    for (int lane = 0; lane < kLanes; ++lane) x[0][lane] = first + static_cast<uint32_t>(lane);
    for (uint32_t k = 1; k < kVectors; ++k) x[k] = x[0] + kLanes * k;
    uint32_t i = 0;
    for (const uint32_t wanted : plan_.seeded) {
      while (i < wanted) {
        ++i;
        for (Vector& w : x) w = (w ^ w >> 30) * 1812433253u + i;
      }
      std::copy(x, x + kVectors, words_[wanted].v);
    }
  }

  void twist(uint64_t j) {
    const Words &near = word(j - kNear), &next = word(j - kState + 1);
    Words& w = word(j);  // where word j - 624 is now
    for (int k = 0; k < kVectors; ++k) {
      const Vector both = (w.v[k] & 0x80000000u) | (next.v[k] & 0x7FFFFFFFu);
      w.v[k] = near.v[k] ^ both >> 1 ^ (next.v[k] & 1u) * 0x9908B0DFu;
    }
  }

  void test() {
    for (Vector& lanes : fits_.v) lanes = ~Vector{};
    for (uint64_t t = 0; t < plan_.tested; ++t) {
      const Words& w = word(kState + skip_ + t);
      for (int k = 0; k < kVectors; ++k) {
        Vector u = w.v[k];
        u ^= u >> 11;
        u ^= u << 7 & 0x9D2C5680u;
        u ^= u << 15 & 0xEFC60000u;
        u ^= u >> 18;
        rank(outputs_[t], u);
        fits_.v[k] &= static_cast<Vector>(u <= outputs_[t].last);
      }
    }
    Vector any{};
    for (const Vector& lanes : fits_.v) any |= lanes;
    any_ = false;
    for (int i = 0; i < kLanes; ++i) any_ |= any[i] != 0;
  }

  const Plan& plan_;
  uint64_t skip_;
  const std::vector<OutputSet>& outputs_;
  std::vector<Words> words_;
  Words fits_;  // all bits of a seed's lane set: it fits
  bool any_ = false;
};

}  // namespace

std::vector<uint32_t> seedhunt(uint64_t skip, const std::vector<OutputSet>& outputs,
                               const SeedhuntOptions& options) {
  constexpr uint64_t kMostSkipped = 1000000, kSeeds = uint64_t{1} << 32, kChunk = 1 << 16;
  INK_CHECK(skip <= kMostSkipped, "seedhunt: expected at most ", kMostSkipped,
            " outputs to skip, got ", skip);
  INK_CHECK(!outputs.empty(), "seedhunt: expected at least one number, got none");
  INK_CHECK(options.first <= kSeeds && options.count <= kSeeds - options.first,
            "seedhunt: expected seeds below 2^32, got ", options.count, " from ", options.first);
  const Plan plan(skip, outputs);
  const uint64_t end = options.first + options.count;
  std::vector<uint32_t> all;
  std::mutex mutex;
  std::atomic<uint64_t> next = options.first;
  parallel_for(max_threads(), 1, [&](int64_t thread, int64_t) {
    Hunter hunter(plan, skip, outputs);
    std::vector<uint32_t> found;
    for (uint64_t chunk; (chunk = next.fetch_add(kChunk)) < end;) {
      if (thread == 0 && options.progress)
        options.progress(static_cast<double>(chunk - options.first) /
                         static_cast<double>(options.count));
      const uint64_t stop = std::min(chunk + kChunk, end);
      for (uint64_t seed = chunk; seed < stop; seed += kBatch) hunter.try_batch(seed, stop, found);
    }
    const std::lock_guard lock(mutex);
    all.insert(all.end(), found.begin(), found.end());
  });
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace ink
