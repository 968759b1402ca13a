// The levels of x86-64 that a portable build holds kernels for (cmake/Levels.cmake): the loader
// takes the one it should, and all of them train the same model.
#include <gtest/gtest.h>

#include <cmath>

#include "nlohmann/json.hpp"
#include "tests/run_program.h"

namespace ink {
namespace {

using nlohmann::json;

// `without`: what the C library is told not to see of the processor.
struct Level {
  const char* name;
  const char* without;
};
constexpr Level kLevels[] = {
    {"x86-64", "-AVX2"}, {"x86-64-v3", "-AVX512F"}, {"x86-64-v4", "-none"}};

json bench(const Level& level) {
  const Ran ran = run_shell(std::string("GLIBC_TUNABLES=glibc.cpu.hwcaps=") + level.without +
                            " inkling bench --config baby --steps 5 --profile_steps 0 --json -");
  EXPECT_EQ(ran.code, 0) << ran.err;
  return json::parse(ran.out);
}

TEST(Levels, EachIsTakenWhereItShouldBeAndTrainsTheSame) {
  const std::string loader = run_shell("/lib64/ld-linux-x86-64.so.2 --help").out;
  const json losses = bench(kLevels[0]).at("losses");
  ASSERT_EQ(losses.size(), 7u);
  for (const Level& level : kLevels) {
    const bool has = loader.find(std::string(level.name) + " (supported") != std::string::npos;
    if (!has && &level != kLevels) continue;
    const json result = bench(level);
    const std::string kernels = result.at("machine").at("gemm"),
                      expected = std::string("; row kernels for ") + level.name;
    EXPECT_TRUE(kernels.ends_with(expected)) << kernels << ", not" << expected;
    for (size_t i = 0; i < losses.size(); ++i) {
      const double loss = losses[i];
      EXPECT_NEAR(result.at("losses")[i].get<double>(), loss, 1e-5 * loss)
          << level.name << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace ink
