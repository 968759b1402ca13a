// What the tests of the CUDA backend share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/memory/device_backend.h"
#include "tests/support/test_device.h"

namespace ink {

inline constexpr Device cuda_device{Device::CUDA, 0};

/// While it lives, factories make tensors on the device.
struct OnCuda : FieldGuard<Device> {
  OnCuda() : FieldGuard(&Context::default_device, cuda_device) {}
};

inline double largest_of(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::isfinite(v) ? std::max(most, std::abs(v)) : most;
  return most;
}

// |got - expected| <= tolerance * largest expected, at every element. Where nothing but zeros and
// their rounding errors is expected, as of a softmax over one key or a norm of one element, these
// may differ.
inline void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                         double tolerance, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), expected[k].shape()) << what << " " << k;
    ASSERT_EQ(got[k].dtype(), expected[k].dtype()) << what << " " << k;
    ASSERT_TRUE(got[k].numel() == 0 || got[k].device() == cuda_device) << what << " " << k;
    const auto a = got[k].tolist(), b = expected[k].tolist();
    const double largest = largest_of(b), bound = tolerance * (largest < 1e-15 ? 10 : largest);
    for (size_t i = 0; i < a.size(); ++i) {
      const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
      ASSERT_TRUE(same || std::abs(a[i] - b[i]) <= bound)
          << what << " " << k << ", element " << i << ": " << a[i] << " on the device, " << b[i]
          << " on the CPU; allowed difference " << bound;
    }
  }
}

}  // namespace ink
