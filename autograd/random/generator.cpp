// The generator, and the fills that need nothing but arithmetic on its outputs.
#include "autograd/random/generator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/context.h"
#include "autograd/random/with_fma.h"

namespace ink {
namespace {

using Lock = std::lock_guard<std::mutex>;

// What a torch.get_rng_state() tensor holds.
struct TorchState {
  uint64_t seed;
  int32_t left;  // 1 + how many of the block's outputs are unread
  int32_t seeded;
  uint64_t next;
  uint64_t state[624];
  double unused_normal_x;
  double spare_normal;
  double unused_normal_rho;
  int32_t has_spare_normal;
  float spare_float_normal;
  bool has_spare_float_normal;
};
static_assert(sizeof(TorchState) == 5056);

}  // namespace

void Generator::manual_seed(uint64_t seed) {
  seed_ = seed;
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kSize; ++i) {
    state_[i] = 1812433253 * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  unread_ = 0;
  spare_normal_.reset();
}

void Generator::twist() {
  constexpr int kAhead = 397;
  const auto mix = [](uint32_t word, uint32_t next) {
    const uint32_t both = (word & 0x80000000) | (next & 0x7FFFFFFF);
    return (both >> 1) ^ ((next & 1) * 0x9908B0DF);
  };
  auto& s = state_;
  for (int i = 0; i < kSize - kAhead; ++i) s[i] = s[i + kAhead] ^ mix(s[i], s[i + 1]);
  for (int i = kSize - kAhead; i < kSize - 1; ++i)
    s[i] = s[i + kAhead - kSize] ^ mix(s[i], s[i + 1]);
  s[kSize - 1] = s[kAhead - 1] ^ mix(s[kSize - 1], s[0]);
}

void Generator::temper() {
  for (int i = 0; i < kSize; ++i) {
    uint32_t y = state_[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680;
    y ^= (y << 15) & 0xEFC60000;
    output_[i] = y ^ (y >> 18);
  }
}

void Generator::refill() {
  twist();
  temper();
  unread_ = kSize;
}

std::span<const uint32_t> Generator::take(int64_t n) {
  if (unread_ == 0) refill();
  const int64_t count = std::min(n, unread_);
  const uint32_t* first = output_.data() + (kSize - unread_);
  unread_ -= count;
  return {first, static_cast<size_t>(count)};
}

void Generator::skip(uint64_t n) {
  if (n > static_cast<uint64_t>(unread_)) {
    n -= static_cast<uint64_t>(unread_);
    for (; n > kSize; n -= kSize) twist();
    refill();
  }
  unread_ -= static_cast<int64_t>(n);
}

uint64_t Generator::random64() {
  const uint64_t first = random();
  return first << 32 | random();
}

std::vector<uint8_t> Generator::get_state() const {
  TorchState s{};
  s.seed = seed_;
  s.left = static_cast<int32_t>(unread_ + 1);
  s.seeded = 1;
  s.next = static_cast<uint64_t>(kSize - unread_);
  std::copy(state_.begin(), state_.end(), s.state);
  s.spare_normal = spare_normal_.value_or(0.0);
  s.has_spare_normal = spare_normal_.has_value();
  std::vector<uint8_t> bytes(sizeof s);
  std::memcpy(bytes.data(), &s, sizeof s);
  return bytes;
}

void Generator::set_state(std::span<const uint8_t> bytes) {
  TorchState s;
  INK_CHECK(bytes.size() == sizeof s, "set_state: expected ", sizeof s, " bytes, got ",
            bytes.size());
  std::memcpy(&s, bytes.data(), offsetof(TorchState, has_spare_float_normal));
  INK_CHECK(s.seeded == 1 && s.left >= 1 && s.left <= kSize,
            "set_state: expected a generator's state, got other bytes");
  seed_ = s.seed;
  std::transform(s.state, s.state + kSize, state_.begin(),
                 [](uint64_t word) { return static_cast<uint32_t>(word); });
  temper();
  unread_ = s.left - 1;
  spare_normal_ = s.has_spare_normal ? std::optional(s.spare_normal) : std::nullopt;
}

Generator& default_generator() {
  static Generator generator;
  Generator* own = context().generator;
  return own != nullptr ? *own : generator;
}

std::vector<uint8_t> generator_state() {
  Generator& g = default_generator();
  const Lock lock(g.mutex());
  return g.get_state();
}

// ---- the seed, and the threads that share it

std::atomic<uint64_t> RandomPosition::seedings{1};

namespace {

std::mutex sharing;
uint64_t shared_seed = 0, threads_seeded = 0;
// The thread that loads the library is the first.
[[maybe_unused]] const Context& first_thread = context();

}  // namespace

RandomPosition RandomPosition::next() {
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;  // seeds that people choose are apart
  const Lock lock(sharing);
  return {.seed = shared_seed + kGoldenRatio * threads_seeded++, .given_by = seedings};
}

void manual_seed(uint64_t seed) {
  Generator& g = default_generator();
  {
    const Lock lock(g.mutex());
    g.manual_seed(seed);
  }
  context().random = {.seed = seed};
  const Lock lock(sharing);
  shared_seed = seed;
  threads_seeded = 1;  // this one
  ++RandomPosition::seedings;
}

// ---- uniform

template <class T>
static void check_uniform(T from, T to) {
  INK_CHECK(from <= to && to - from <= std::numeric_limits<T>::max(),
            "uniform_: expected from <= to with a finite distance, got from ", from, " to ", to);
}

// PyTorch rounds the bounds to the element's type first and contracts x * (to - from) + from to an
// FMA; where that rounds up to the excluded bound it gives the included one instead.
static INK_WITH_FMA void to_uniform(float* out, const uint32_t* bits, int64_t n, float low,
                                    float high) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(bits[i] & 0xFFFFFF) * 0x1p-24f;
    const float y = std::fma(x, high - low, low);
    out[i] = y == high ? low : y;
  }
}

void uniform_(float* out, int64_t n, double from, double to, Generator& g) {
  const float low = static_cast<float>(from), high = static_cast<float>(to);
  check_uniform(low, high);
  const Lock lock(g.mutex());
  for (float* const end = out + n; out < end;) {
    const auto bits = g.take(end - out);
    to_uniform(out, bits.data(), static_cast<int64_t>(bits.size()), low, high);
    out += bits.size();
  }
}

void uniform_(double* out, int64_t n, double from, double to, Generator& g) {
  check_uniform(from, to);
  const Lock lock(g.mutex());
  for (int64_t i = 0; i < n; ++i) {
    const double y = std::fma(g.uniform53(), to - from, from);
    out[i] = y == to ? from : y;
  }
}

// ---- integers

// From this range up, PyTorch takes two outputs for a number, to limit the bias of the remainder.
constexpr uint64_t kWideRange = 1ull << 28;

template <class T>
void randint_(T* out, int64_t n, int64_t low, int64_t high, Generator& g) {
  INK_CHECK(low < high, "randint: expected low < high, got ", low, " and ", high);
  if constexpr (std::is_floating_point_v<T>) {
    constexpr int64_t kExact = int64_t{1} << std::numeric_limits<T>::digits;
    INK_CHECK(low >= -kExact && high - 1 <= kExact, "randint: expected bounds within +-", kExact,
              ", where this type holds every integer, got ", low, " and ", high);
  }
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const auto draw = [&](uint64_t bits) {
    return static_cast<T>(static_cast<int64_t>(bits % range + static_cast<uint64_t>(low)));
  };
  const Lock lock(g.mutex());
  if (range < kWideRange) {
    for (int64_t i = 0; i < n; ++i) out[i] = draw(g.random());
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = draw(g.random64());
  }
}
template void randint_(int64_t*, int64_t, int64_t, int64_t, Generator&);
template void randint_(float*, int64_t, int64_t, int64_t, Generator&);
template void randint_(double*, int64_t, int64_t, int64_t, Generator&);

// Fisher and Yates from the front. From n = 2^32 / 20 up, PyTorch takes two outputs per element.
void randperm_(int64_t* out, int64_t n, Generator& g) {
  constexpr int64_t kManyElements = std::numeric_limits<uint32_t>::max() / 20;
  std::iota(out, out + n, int64_t{0});
  const Lock lock(g.mutex());
  for (int64_t i = 0; i < n - 1; ++i) {
    const uint64_t bits = n < kManyElements ? g.random() : g.random64();
    std::swap(out[i], out[i + static_cast<int64_t>(bits % static_cast<uint64_t>(n - i))]);
  }
}

}  // namespace ink
