// Runs a test of this program again with each unit of the processor (gemm/units.h), and with other
// numbers of threads, because both decide how much memory a step takes.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "autograd/gemm/units.h"
#include "tests/support/run_program.h"

namespace ink {

/// Each run is a process of its own, because a process chooses its units once. Under a sanitizer
/// they would take minutes, and the test itself is enough.
inline void expect_passes_with_each_unit(const std::string& test) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "for builds without a sanitizer";
#endif
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const GemmUnit* unit : gemm_units()) {
    for (const char* threads : {"1", "3"}) {
      const std::string settings = std::string("INKLING_CPU_CAPABILITY=") + unit->name +
                                   " OMP_NUM_THREADS=" + threads + " OMP_WAIT_POLICY=passive";
      const Ran ran = run_shell(settings + " '" + program + "' --gtest_filter=" + test);
      EXPECT_EQ(ran.code, 0) << settings << "\n" << ran.out << ran.err;
      EXPECT_NE(ran.out.find("[  PASSED  ] 1 test."), std::string::npos) << ran.out;
    }
  }
}

}  // namespace ink
