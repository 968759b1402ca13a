// main of every test program: runs the tests under the coverage observer, and checks that each
// leaves neither a tensor nor a node of a graph behind. Arguments name files: `tests_autograd
// test_matmul` runs that file's tests, within what --gtest_filter says. With
// INKLING_TEST_DEVICE=cuda in the environment, factories make tensors on that device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include "autograd/engine/graph.h"
#include "autograd/memory/device_backend.h"
#include "tests/support/coverage.h"

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

/// Leaves out the tests of all but these files. Returns those that have no test.
static std::set<std::string> choose_files(const std::set<std::string>& files) {
  std::set<std::string> missing = files;
  std::string others;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    std::string left_out;
    int count = 0;
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string file = std::filesystem::path(test.file()).stem().string();
      missing.erase(file);
      if (files.count(file) != 0) continue;
      left_out += std::string(":") + suite.name() + "." + test.name();
      ++count;
    }
    others += count == suite.total_test_count() ? std::string(":") + suite.name() + ".*" : left_out;
  }
  std::string filter = testing::GTEST_FLAG(filter);
  if (!others.empty()) filter += (filter.find('-') == std::string::npos ? "-" : ":");
  testing::GTEST_FLAG(filter) = others.empty() ? filter : filter + others.substr(1);
  return missing;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) {
    for (const std::string& file : choose_files({argv + 1, argv + argc})) {
      std::cerr << argv[0] << ": has no test of a file " << file << "\n";
      return 1;
    }
  }
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
