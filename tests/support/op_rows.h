// What test_ops and test_cuda share: a test of each row of train/cases/op_cases.cpp, with all sets.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/coverage.h"
#include "tests/support/test_device.h"
#include "train/cases/op_case_inputs.h"

namespace ink {

class OpRow : public testing::TestWithParam<size_t> {
 protected:
  const OpCase& row() const { return op_cases()[GetParam()]; }

  /// Calls check for each set of the row's inputs, until one has a fatal failure.
  /// INKLING_TEST_LARGEST in the environment: without larger inputs, where all take too long. On
  /// the CPU, a check with_large has them all the same.
  void for_each_set(const std::function<void(const std::vector<In>&)>& check,
                    bool with_large = false) const {
    static const char* const most = std::getenv("INKLING_TEST_LARGEST");
    for (const auto& set : row().inputs) {
      if (most != nullptr && !(with_large && test_device().is_cpu()) &&
          largest(set) > std::stoll(most))
        continue;
      std::ostringstream shapes;
      for (const In& in : set) shapes << in.shape << " ";
      SCOPED_TRACE(shapes.str());
      check(set);
      if (HasFatalFailure()) return;
    }
  }

  void SetUp() override { Coverage::instance().enter_row(row().name); }
  void TearDown() override {
    Coverage::instance().enter_row("");
    if (!test_device().is_cpu()) empty_cache(test_device());
  }

 public:
  static std::string name(const testing::TestParamInfo<size_t>& info) {
    std::string name = std::to_string(info.index) + "_" + op_cases()[info.param].name;
    for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    return name;
  }
};

}  // namespace ink
