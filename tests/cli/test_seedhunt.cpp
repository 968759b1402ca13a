// Seeds found again, in slices of the seed space small enough for every test run.
#include <gtest/gtest.h>

#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "autograd/random/generator.h"
#include "autograd/tensor.h"
#include "tests/support/run_program.h"
#include "train/cli/seedhunt.h"

namespace ink {
namespace {

using Seeds = std::vector<uint32_t>;

Seeds hunt(uint64_t skip, const std::vector<OutputSet>& outputs, uint64_t first, uint64_t count) {
  SeedhuntOptions options;
  options.first = first;
  options.count = count;
  return seedhunt(skip, outputs, options);
}

std::vector<OutputSet> rands(const std::vector<std::string>& printed, int digits = 4) {
  std::vector<OutputSet> outputs;
  for (const std::string& text : printed) outputs.push_back(printed_rand(text, digits));
  return outputs;
}

// The third walkthrough: rand(2, 8, 16), three Linear(16, 16), then the last three of the first row
// of rand(3, 9, 9). Trying all 2^32 gives this one seed too, in some 90 seconds on two cores.
TEST(Seedhunt, FindsTheWalkthroughsSeed) {
  const uint64_t skip = 2 * 8 * 16 + 3 * (16 * 16 + 16) + 6;
  EXPECT_EQ(hunt(skip, rands({"0.1245", "0.6143", "0.4404"}), 3308764504 - 100000, 200000),
            Seeds{3308764504});
}

TEST(Seedhunt, AnySkipAndTheEndsOfTheSeeds) {
  const uint64_t all = uint64_t{1} << 32;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1337}, all - 1}) {
    for (const uint64_t skip :
         std::initializer_list<uint64_t>{0, 1, 226, 227, 396, 397, 622, 623, 624, 1000, 3000}) {
      Generator g(seed);
      g.skip(skip);
      std::vector<std::string> printed;
      for (int i = 0; i < 4; ++i) {
        char text[16];
        std::snprintf(text, sizeof text, "%.4f", g.uniform24());
        printed.push_back(text);
      }
      const uint64_t first = seed < 2000 ? 0 : all - 2000;
      EXPECT_EQ(hunt(skip, rands(printed), first, 2000), Seeds{static_cast<uint32_t>(seed)})
          << skip;
    }
  }
}

TEST(Seedhunt, AllThatFitInOrder) {
  const auto outputs = rands({"0.5"}, 1);
  Seeds expected;
  for (uint32_t seed = 1000; seed < 1333; ++seed) {
    if (outputs[0].contains(Generator(seed).random())) expected.push_back(seed);
  }
  EXPECT_GT(expected.size(), 10u);
  EXPECT_EQ(hunt(0, outputs, 1000, 333), expected);
}

TEST(Seedhunt, OfWholeNumbers) {
  manual_seed(538);
  std::vector<OutputSet> outputs;
  for (const auto value : randint(10, {12}).tolist<int64_t>())
    outputs.push_back(drawn_randint(static_cast<uint64_t>(value), 10));
  EXPECT_EQ(hunt(0, outputs, 0, 100000), Seeds{538});
}

TEST(Seedhunt, RemaindersAreExact) {
  Generator g(1);
  for (const uint64_t high :
       std::initializer_list<uint64_t>{2, 3, 7, 10, 24, 1000, 50257, (1 << 28) - 1}) {
    for (int i = 0; i < 2000; ++i) {
      const uint32_t u = i < 8 ? ~static_cast<uint32_t>(i) : i < 16 ? uint32_t(i - 8) : g.random();
      EXPECT_TRUE(drawn_randint(u % high, high).contains(u)) << u << " % " << high;
      const uint64_t other = g.random() % high;
      EXPECT_EQ(drawn_randint(other, high).contains(u), u % high == other) << u << " % " << high;
    }
  }
}

TEST(Seedhunt, PrintedNumbersAreIntervals) {
  EXPECT_TRUE(printed_rand("1.0000", 4).contains(0xFFFFFF));
  EXPECT_TRUE(printed_rand("0", 4).contains(0xFF000000));
  EXPECT_FALSE(printed_rand("0", 4).contains(0x000FFF));
  EXPECT_TRUE(printed_rand(".0312", 4).contains(1 << 19));  // 0.03125, a tie, to even
  EXPECT_FALSE(printed_rand("0.0313", 4).contains(1 << 19));
  EXPECT_NEAR(printed_rand("0.5", 4).share(), 1e-4, 1e-7);
}

TEST(Seedhunt, UsageErrors) {
  const auto first_line = [](const std::string& arguments) {
    const Ran ran = run_program("seedhunt " + arguments);
    EXPECT_EQ(ran.code, 2) << arguments << ran.out << ran.err;
    return ran.err.substr(0, ran.err.find('\n'));
  };
  EXPECT_EQ(first_line(""),
            "inkling seedhunt: expected the printed numbers: --rand 0.1245,0.6143,0.4404");
  EXPECT_EQ(first_line("--rand 0.1245,1.5,0.3"),
            "inkling seedhunt: expected a number in [0, 1] as rand prints it, got '1.5'");
  EXPECT_EQ(first_line("--rand 0.1245,abc"),
            "inkling seedhunt: expected a number in [0, 1] as rand prints it, got 'abc'");
  EXPECT_EQ(first_line("--rand 0.12451,0.2,0.3"),
            "inkling seedhunt: 0.12451 has more than 4 digits; say how many were printed");
  EXPECT_EQ(first_line("--rand 0.1245"),
            "inkling seedhunt: about 429.6k seeds would fit; give more numbers than 1");
  EXPECT_EQ(first_line("--randint 10 --values 3,12"),
            "inkling seedhunt: expected values of randint(10), got 12");
  EXPECT_EQ(first_line("--randint 10 --values 3,0.5"),
            "inkling seedhunt: expected whole numbers with --randint, got '0.5'");
  EXPECT_EQ(first_line("--randint 0 --values 3"),
            "inkling seedhunt: --randint is 0; expected 2 to 9223372036854775807");
  EXPECT_EQ(first_line("--rand 0.1,0.2,0.3 --digits 12"),
            "inkling seedhunt: --digits is 12; expected 1 to 9");
}

}  // namespace
}  // namespace ink
