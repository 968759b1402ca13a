// The levels of x86-64 that a portable build holds kernels for (cmake/Levels.cmake): the loader
// takes the one it should, and all of them train the same model.
#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace ink {
namespace {

using nlohmann::json;

struct Level {
  const char* name;
  const char* tunables;  // what the C library is told not to see of the processor
};
constexpr Level kLevels[] = {{"x86-64", "glibc.cpu.hwcaps=-AVX2"},
                             {"x86-64-v3", "glibc.cpu.hwcaps=-AVX512F"},
                             {"x86-64-v4", ""}};

TEST(Levels, EachIsTakenWhereItShouldBeAndTrainsTheSame) {
  const std::string loader = run_shell("/lib64/ld-linux-x86-64.so.2 --help").out;
  json losses;
  for (const Level& level : kLevels) {
    const bool has = loader.find(std::string(level.name) + " (supported") != std::string::npos;
    if (!has && !losses.is_null()) continue;
    const Ran ran = run_shell(std::string("GLIBC_TUNABLES=") + level.tunables +
                              " inkling bench --config baby --steps 5 --profile_steps 0 --json -");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json result = json::parse(ran.out);
    const std::string kernels = result.at("machine").at("gemm");
    EXPECT_TRUE(kernels.ends_with(std::string("; row kernels for ") + level.name))
        << kernels << ", not " << level.name;
    if (losses.is_null()) losses = result.at("losses");
    ASSERT_EQ(losses.size(), 7u);
    for (size_t i = 0; i < losses.size(); ++i) {
      const double loss = losses[i];
      EXPECT_NEAR(result.at("losses")[i].get<double>(), loss, 1e-5 * loss)
          << level.name << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace ink
