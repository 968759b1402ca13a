// main of every test program: runs the tests under the coverage observer, and checks that each
// leaves neither a tensor nor a node of a graph behind. With INKLING_TEST_DEVICE=cuda in the
// environment, factories make tensors on that device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "autograd/engine/graph.h"
#include "autograd/memory/device_backend.h"
#include "tests/coverage.h"

// A cycle of handles, or a cache of tensors, shows here.
class NothingLeft : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    tensors_ = ink::TensorImpl::live;
    nodes_ = ink::Node::live;
  }
  void OnTestEnd(const testing::TestInfo&) override {
    EXPECT_EQ(ink::TensorImpl::live, tensors_) << "tensors outlived their test";
    EXPECT_EQ(ink::Node::live, nodes_) << "a graph outlived its test";
  }

  int64_t tensors_ = 0, nodes_ = 0;
};

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* device = std::getenv("INKLING_TEST_DEVICE"))
    ink::context().default_device = ink::parse_device(device);
  if (ink::context().default_device.is_cuda() && ink::cuda_device_count() == 0) {
    std::cout << "no CUDA device\n";
    return 0;
  }
  testing::UnitTest::GetInstance()->listeners().Append(new NothingLeft);
  const ink::Observe observe(ink::Coverage::instance());
  const int status = RUN_ALL_TESTS();
  ink::Coverage::instance().write();
  return status;
}
