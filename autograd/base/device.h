// Where a tensor's memory lives.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace ink {

struct Device {
  enum Type : uint8_t { CPU, CUDA };
  Type type = CPU;
  int8_t index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == CPU; }
  bool is_cuda() const { return type == CUDA; }
};

inline constexpr Device cpu_device{};

/// "cpu", "cuda" (the first one) or "cuda:1"; throws on any other name. The machine may lack it.
Device parse_device(const std::string& name);

inline std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.is_cpu()) return out << "cpu";
  return out << "cuda:" << int{device.index};
}

}  // namespace ink
