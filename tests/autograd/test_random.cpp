// The generator against PyTorch's, bit for bit (golden/random.txt, made by
// golden/random_fixtures.py), and Philox against its published answers.
#include "autograd/random/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/context.h"
#include "autograd/random/philox.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t,
                                std::conditional_t<sizeof(T) == 8, uint64_t, uint8_t>>;

template <class T>
uint64_t hash(const std::vector<T>& values) {
  uint64_t h = 0xCBF29CE484222325;
  for (const T value : values) h = (h ^ std::bit_cast<Bits<T>>(value)) * 0x100000001B3;
  return h;
}

/// Reads fixtures, one a line, and draws each with our own fills.
class Replay {
 public:
  explicit Replay(const std::filesystem::path& path) : file_(path) {
    EXPECT_TRUE(file_.is_open()) << path;
  }

  /// Replays one line; false at the end of the file.
  bool next() {
    std::string text;
    do {
      if (!std::getline(file_, text)) return false;
      ++line_;
    } while (text.starts_with('#'));
    in_ = std::istringstream(text);
    const auto what = read<std::string>();
    if (what == "seed") {
      g_.manual_seed(read<uint64_t>());
    } else {
      draw(what);
      ++drawn_;
    }
    return true;
  }

  int drawn() const { return drawn_; }

 private:
  template <class T>
  T read() {
    T value{};
    in_ >> value;
    return value;
  }
  double real() { return std::stod(read<std::string>()); }  // streams do not read hexadecimal ones

  void draw(const std::string& what);
  void draw_multinomial(int64_t* out);
  void draw_linear(float* out, int64_t n);

  /// The rest of a line: n, arguments that fill(out, n) reads, and what PyTorch drew.
  template <class T, class Fill>
  void fixture(Fill fill, bool libm = false) {
    std::vector<T> out(read<size_t>());
    fill(out.data(), static_cast<int64_t>(out.size()));
    compare(out, libm);
  }

  /// The same where the first word is the type. libm: its doubles come from libm.
  template <class Fill>
  void real_fixture(Fill fill, bool libm = false) {
    if (read<std::string>() == "f64") {
      fixture<double>(fill, libm);
    } else {
      fixture<float>(fill);
    }
  }

  // Doubles from libm may differ in their last bits between its versions: those are compared
  // loosely, and their hash is that of their floats.
  template <class T>
  void compare(const std::vector<T>& got, bool libm) {
    const auto digest = read<std::string>();
    const auto listed = read<size_t>();
    ASSERT_TRUE(in_ && (listed == 0 || listed == got.size())) << "line " << line_;
    in_ >> std::hex;
    for (size_t i = 0; i < listed; ++i) {
      const T want = std::bit_cast<T>(static_cast<Bits<T>>(read<uint64_t>()));
      const auto tolerance = libm ? 4e-16 * std::abs(static_cast<double>(want)) : 0.0;
      EXPECT_NEAR(static_cast<double>(got[i]), static_cast<double>(want), tolerance)
          << "line " << line_ << ", value " << i;
    }
    const uint64_t hashed = libm ? hash(std::vector<float>(got.begin(), got.end())) : hash(got);
    EXPECT_EQ(hashed, std::stoull(digest, nullptr, 16)) << "line " << line_;
  }

  std::ifstream file_;
  std::istringstream in_;
  int line_ = 0, drawn_ = 0;
  Generator g_;
};

void Replay::draw_multinomial(int64_t* out) {
  const auto rows = read<int64_t>(), categories = read<int64_t>(), samples = read<int64_t>();
  const bool replacement = read<int>() != 0;
  std::vector<float> weights(static_cast<size_t>(rows * categories));
  uniform_(weights.data(), rows * categories, 0.0, 1.0, g_);
  multinomial_(out, weights.data(), rows, categories, samples, replacement, g_);
}

void Replay::draw_linear(float* out, int64_t n) {
  const auto n_in = read<int64_t>(), n_out = read<int64_t>();
  const double bound = 1.0 / std::sqrt(static_cast<double>(n_in));
  const int64_t weights = n_in * n_out;
  uniform_(out, weights, -bound, bound, g_);
  uniform_(out + weights, n - weights, -bound, bound, g_);  // the bias, where there is one
}

void Replay::draw(const std::string& what) {
  constexpr bool kLibm = true;
  if (what == "uniform") {
    real_fixture([&](auto* out, int64_t n) {
      const double from = real(), to = real();
      uniform_(out, n, from, to, g_);
    });
  } else if (what == "normal") {
    real_fixture(
        [&](auto* out, int64_t n) {
          const double mean = real(), std = real();
          normal_(out, n, mean, std, g_);
        },
        kLibm);
  } else if (what == "exponential") {
    real_fixture([&](auto* out, int64_t n) { exponential_(out, n, real(), g_); }, kLibm);
  } else if (what == "randint") {
    const auto fill = [&](auto* out, int64_t n) {
      const auto low = read<int64_t>(), high = read<int64_t>();
      randint_(out, n, low, high, g_);
    };
    const auto type = read<std::string>();
    type == "i64"   ? fixture<int64_t>(fill)
    : type == "f64" ? fixture<double>(fill)
                    : fixture<float>(fill);
  } else if (what == "randperm") {
    fixture<int64_t>([&](int64_t* out, int64_t n) { randperm_(out, n, g_); });
  } else if (what == "bernoulli") {
    fixture<float>([&](float* out, int64_t n) { bernoulli_(out, n, real(), g_); });
  } else if (what == "bernoulli_mkl") {
    fixture<float>(
        [&](float* out, int64_t n) { bernoulli_(out, n, real(), g_, BernoulliRule::mkl); });
  } else if (what == "bernoulli_each") {
    const auto fill = [&](auto p) {  // probabilities of p's type, and floats from them
      fixture<float>([&](float* out, int64_t n) {
        std::vector<decltype(p)> probabilities(static_cast<size_t>(n));
        uniform_(probabilities.data(), n, 0.0, 1.0, g_);
        bernoulli_(out, n, probabilities.data(), g_);
      });
    };
    read<std::string>() == "f64" ? fill(0.0) : fill(0.0f);
  } else if (what == "multinomial") {
    fixture<int64_t>([&](int64_t* out, int64_t) { draw_multinomial(out); });
  } else if (what == "linear") {
    fixture<float>([&](float* out, int64_t n) { draw_linear(out, n); });
  } else if (what == "embedding") {
    fixture<float>([&](float* out, int64_t n) { normal_(out, n, 0.0, 1.0, g_); });
  } else if (what == "state") {
    fixture<uint8_t>([&](uint8_t* out, int64_t) {
      const auto state = g_.get_state();
      std::copy(state.begin(), state.end(), out);
    });
  } else {
    FAIL() << "line " << line_ << ": unknown fixture " << what;
  }
}

TEST(Random, DrawsWhatPyTorchDraws) {
  Replay replay(std::filesystem::path(INKLING_SOURCE_DIR) / "tests" / "golden" / "random.txt");
  while (!HasFailure() && replay.next()) {
  }
  EXPECT_GE(replay.drawn(), 690);
}

std::vector<uint32_t> draw(Generator& g, int n) {
  std::vector<uint32_t> out;
  for (int i = 0; i < n; ++i) out.push_back(g.random());
  return out;
}

TEST(Random, SkipIsDrawing) {
  for (const uint64_t before : {0u, 1u, 623u, 624u}) {
    for (const uint64_t n : {0u, 1u, 2u, 622u, 623u, 624u, 625u, 1247u, 1248u, 1249u, 5000u}) {
      Generator drawing(3), skipping(3);
      for (uint64_t i = 0; i < before + n; ++i) drawing.random();
      for (uint64_t i = 0; i < before; ++i) skipping.random();
      skipping.skip(n);
      EXPECT_EQ(draw(skipping, 700), draw(drawing, 700)) << before << " drawn, then " << n;
    }
  }
}

TEST(Random, StateResumes) {
  for (const int drawn : {0, 1, 100, 623, 624, 625}) {
    Generator g(11);
    draw(g, drawn);
    double first = 0.0;
    normal_(&first, 1, 0.0, 1.0, g);  // leaves a spare
    Generator copy;
    copy.set_state(g.get_state());
    EXPECT_EQ(copy.initial_seed(), 11u);
    EXPECT_EQ(copy.normal(), g.normal());
    EXPECT_EQ(copy.normal(), g.normal());
    EXPECT_EQ(draw(copy, 700), draw(g, 700));
  }
  Generator fresh(5), copy(6);
  copy.set_state(fresh.get_state());
  EXPECT_EQ(draw(copy, 700), draw(fresh, 700));
}

TEST(Random, BadStateIsRefused) {
  Generator g(1);
  const auto before = g.get_state();
  EXPECT_EQ(error_of([&] { g.set_state(std::vector<uint8_t>(10)); }),
            "set_state: expected 5056 bytes, got 10");
  EXPECT_EQ(error_of([&] { g.set_state(std::vector<uint8_t>(5056)); }),
            "set_state: expected a generator's state, got other bytes");
  EXPECT_EQ(g.get_state(), before);
}

TEST(Random, ManualSeedSeedsEverything) {
  const ContextGuard restore;
  context().random = RandomPosition{.seed = 1, .step = 2, .micro_batch = 3, .call = 4};
  manual_seed(1234567890123456789);
  Generator own(1234567890123456789);
  EXPECT_EQ(default_generator().initial_seed(), own.initial_seed());
  EXPECT_EQ(draw(default_generator(), 3), draw(own, 3));
  const RandomPosition& position = context().random;
  EXPECT_EQ(position.seed, 1234567890123456789u);
  EXPECT_EQ(position.step + position.micro_batch + position.call, 0u);
}

TEST(Random, NothingDrawsNothing) {
  Generator g(9), untouched(9);
  uniform_(static_cast<float*>(nullptr), 0, 0.0, 1.0, g);
  normal_(static_cast<double*>(nullptr), 0, 0.0, 1.0, g);
  randint_(static_cast<int64_t*>(nullptr), 0, 0, 10, g);
  randperm_(nullptr, 0, g);
  bernoulli_(nullptr, 0, 0.5, g);
  int64_t one = -1;
  randperm_(&one, 1, g);
  EXPECT_EQ(one, 0);
  EXPECT_EQ(draw(g, 2), draw(untouched, 2));
}

TEST(Random, FillsShareAGenerator) {
  constexpr int64_t kEach = 100000;
  Generator shared(21), alone(21);
  std::vector<float> together(2 * kEach), once(2 * kEach);
  const auto fill = [&](float* out) {
    for (int64_t i = 0; i < kEach; i += 10) uniform_(out + i, 10, 0.0, 1.0, shared);
  };
  std::thread a(fill, together.data()), b(fill, together.data() + kEach);
  a.join();
  b.join();
  uniform_(once.data(), 2 * kEach, 0.0, 1.0, alone);
  std::sort(together.begin(), together.end());
  std::sort(once.begin(), once.end());
  EXPECT_EQ(together, once);
}

TEST(Random, BadArgumentsAreNamed) {
  Generator g;
  float x[4] = {};
  double d[4] = {};
  int64_t i[4] = {};
  EXPECT_EQ(error_of([&] { uniform_(x, 4, 1.0, 0.0, g); }),
            "uniform_: expected from <= to with a finite distance, got from 1 to 0");
  EXPECT_EQ(error_of([&] { uniform_(d, 4, -1.7e308, 1.7e308, g); }),
            "uniform_: expected from <= to with a finite distance, got from -1.7e+308 to 1.7e+308");
  EXPECT_EQ(error_of([&] { normal_(x, 4, 0.0, -1.0, g); }), "normal_: expected std >= 0, got -1");
  EXPECT_EQ(error_of([&] { randint_(i, 4, 3, 3, g); }),
            "randint: expected low < high, got 3 and 3");
  EXPECT_EQ(error_of([&] { randint_(x, 4, 0, 1 << 25, g); }),
            "randint: expected bounds within +-16777216, where this type holds every integer, "
            "got 0 and 33554432");
  EXPECT_EQ(error_of([&] { bernoulli_(x, 4, 1.5, g); }),
            "bernoulli_: expected a probability in [0, 1], got 1.5");
  EXPECT_EQ(error_of([&] { exponential_(x, 4, 0.0, g); }),
            "exponential_: expected a rate > 0, got 0");
  const float negative[] = {0.5f, -1.0f}, zero[] = {0.0f, 0.0f}, one[] = {0.0f, 2.0f};
  EXPECT_EQ(error_of([&] { multinomial_(i, negative, 1, 2, 1, true, g); }),
            "multinomial: expected finite weights >= 0, got -1 at index 1");
  EXPECT_EQ(error_of([&] { multinomial_(i, zero, 1, 2, 2, true, g); }),
            "multinomial: expected at least 1 positive weights a row, got 0");
  EXPECT_EQ(error_of([&] { multinomial_(i, one, 1, 2, 2, false, g); }),
            "multinomial: expected at least 2 positive weights a row, got 1");
}

// The known answers published with Random123 (kat_vectors, philox4x32-10).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  static_assert(Philox::at(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(Philox::at(ones, ones, ones), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::at(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformIsBelowOne) {
  EXPECT_EQ(Philox::uniform(0), 0.0f);
  EXPECT_EQ(Philox::uniform(0x80000000), 0.5f);
  EXPECT_EQ(Philox::uniform(0xFFFFFFFF), 1.0f - 0x1p-24f);
}

TEST(Philox, DerivedKeysDiffer) {
  std::vector<uint64_t> keys;
  for (uint64_t step = 0; step < 30; ++step) {
    for (uint64_t call = 0; call < 30; ++call) keys.push_back(Philox::derive(1, step, call));
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

}  // namespace
}  // namespace ink
