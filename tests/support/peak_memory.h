// The memory of this process at its peak, where the system tells.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace ink {

inline int64_t status_bytes(std::string_view field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) == 0) return 1024 * std::stoll(line.substr(field.size()));
  }
  return 0;
}

/// How many bytes more than before the process holds at a time, at most, while f() runs. None: the
/// peak cannot be reset here, or a sanitizer holds memory of its own.
template <class F>
std::optional<int64_t> peak_memory_of(F&& f) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  f();
  return {};
#else
  std::ofstream reset("/proc/self/clear_refs");
  const bool is_reset = static_cast<bool>(reset << 5 << std::flush);
  const int64_t before = status_bytes("VmRSS:");
  f();
  return is_reset ? std::optional(status_bytes("VmHWM:") - before) : std::nullopt;
#endif
}

}  // namespace ink
