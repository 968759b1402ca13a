// Every layer of module_cases.cpp: the gradients of all its parameters and inputs.
#include <gtest/gtest.h>

#include "tests/module_cases.h"

namespace ink {
namespace {

TEST(Modules, GradientsOfAllParametersAndInputs) {
  for (const ModuleCase& row : module_cases()) {
    const GradcheckReport report = check_module(row);
    EXPECT_TRUE(report.ok) << row.name << ": " << report;
    EXPECT_GT(report.checked, 0) << row.name;
  }
}

}  // namespace
}  // namespace ink
