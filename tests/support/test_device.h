// The device that a test program is run on: INKLING_TEST_DEVICE (main.cpp), or else the CPU.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "autograd/io/serialize.h"
#include "autograd/memory/device_backend.h"

namespace ink {

inline Device test_device() { return context().default_device; }
/// The same for TrainConfig::device.
inline std::string test_device_name() { return test_device().is_cpu() ? "cpu" : "cuda"; }

/// A file of tests/golden.
inline std::filesystem::path golden(const std::string& name) {
  const char* elsewhere = std::getenv("INKLING_SOURCE_DIR");  // where a build was carried to
  return std::filesystem::path(elsewhere ? elsewhere : INKLING_SOURCE_DIR) / "tests/golden" / name;
}

/// The tensors of such a file, on the test's device.
inline NamedTensors load_golden(const std::string& name, Metadata* metadata = nullptr) {
  NamedTensors tensors = load(golden(name), metadata);
  for (auto& [key, tensor] : tensors) tensor = tensor.to(test_device());
  return tensors;
}

/// How much of something to try: launches take their time, and emulated threads far more.
inline int64_t by_device(int64_t on_cpu, int64_t on_device) {
  return test_device().is_cpu() ? on_cpu : on_device;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(cpu_device).contiguous(), y = b.to(cpu_device).contiguous();
  return a.shape() == b.shape() && a.dtype() == b.dtype() && for_any(a.dtype(), [&]<class T>(T) {
           return x.numel() == 0 || std::memcmp(x.data<T>(), y.data<T>(),
                                                static_cast<size_t>(x.numel()) * sizeof(T)) == 0;
         });
}

}  // namespace ink
