// Limits: the values that a setting may have.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ink {

/// The values that a field may have.
struct Limits {
  double least = -kNone, most = kNone;    // of a number; it may be one of these
  double above = -kNone, below = kNone;   // the same, but it may be neither of these
  std::vector<std::string> choices = {};  // of a text; none: any text

  static constexpr double kNone = std::numeric_limits<double>::infinity();
};
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// "1 to 1000", "0 to below 1", "adamw or sgd"; empty if any value is allowed. short: "1 or more"
/// where the most is a million or more.
std::string range_text(const Limits& limits, bool is_short = false);
/// Throws, beginning with the name, unless a number, or a text, is within the limits.
void check_limits(const std::string& name, const Limits& limits, double value);
void check_limits(const std::string& name, const Limits& limits, int64_t value);
void check_limits(const std::string& name, const Limits& limits, const std::string& value);

}  // namespace ink
