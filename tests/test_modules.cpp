// Every layer of train/cases/module_cases.cpp: the gradients of all its parameters and inputs.
#include <gtest/gtest.h>

#include "tests/test_device.h"
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

}  // namespace
}  // namespace ink
