// Every layer of train/cases/module_cases.cpp: the gradients of all its parameters and inputs; and
// walks over fields from several threads.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "nn/linear.h"
#include "tests/support/test_device.h"
#include "train/cases/module_cases.h"

namespace ink {
namespace {

TEST(Modules, GradientsOfAllParametersAndInputs) {
  GradcheckOptions options;
  options.max_elements = by_device(options.max_elements, 4);  // beyond, along random directions
  for (const ModuleCase& row : module_cases()) {
    const GradcheckReport report = check_module(row, options);
    EXPECT_TRUE(report.ok) << row.name << ": " << report;
    EXPECT_GT(report.checked, 0) << row.name;
  }
}

TEST(Modules, SecondDerivativesOfAllParametersAndInputs) {
  GradcheckOptions options{.rtol = 1e-4, .atol = 1e-6};
  options.max_elements = by_device(options.max_elements, 0);
  options.directions = static_cast<int>(by_device(options.directions, 1));
  for (const ModuleCase& row : module_cases()) {
    const GradcheckReport report = check_module(row, options, true);
    EXPECT_TRUE(report.ok) << row.name << ": " << report;
    EXPECT_GT(report.checked, 0) << row.name;
  }
}

// The names are parsed in the first walk, whichever threads make it.
TEST(Modules, EveryWalkInEveryThreadSeesTheNames) {
  struct Pair : Module {
    Linear first{1, 1, false}, second{1, 1, false};
    INK_FIELDS(first, second)
  };
  struct Triple : Pair {
    Parameter third{ones({1})};
    INK_FIELDS(Pair, third)
  };
  Triple module;
  using Names = std::vector<std::string>;
  std::array<Names, 4> seen;
  std::vector<std::thread> threads;
  for (Names& names : seen)
    threads.emplace_back([&] {
      for (int walk = 0; walk < 2; ++walk)
        for (const Field& field : module.fields()) names.push_back(field.name);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Names& names : seen)
    EXPECT_EQ(names, (Names{"first", "second", "third", "first", "second", "third"}));
}

}  // namespace
}  // namespace ink
