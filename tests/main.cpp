// main of every test program: runs the tests under the coverage observer. With
// INKLING_TEST_DEVICE=cuda in the environment, factories make tensors on that device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "autograd/memory/device_backend.h"
#include "tests/coverage.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* device = std::getenv("INKLING_TEST_DEVICE"))
    ink::context().default_device = ink::parse_device(device);
  if (ink::context().default_device.is_cuda() && ink::cuda_device_count() == 0) {
    std::cout << "no CUDA device\n";
    return 0;
  }
  const ink::Observe observe(ink::Coverage::instance());
  const int status = RUN_ALL_TESTS();
  ink::Coverage::instance().write();
  return status;
}
