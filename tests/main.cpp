// main of every test program: runs the tests under the coverage observer.
#include <gtest/gtest.h>

#include "tests/coverage.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const ink::Observe observe(ink::Coverage::instance());
  const int status = RUN_ALL_TESTS();
  ink::Coverage::instance().write();
  return status;
}
