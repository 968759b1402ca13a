#include "train/limits.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

std::string number(double value) {
  if (value >= 0x1p63) return std::to_string(std::numeric_limits<int64_t>::max());
  if (value == std::floor(value)) return std::to_string(static_cast<int64_t>(value));
  return detail::joined({value});
}

template <class Value>
void check_number(const std::string& name, const Limits& limits, Value value) {
  const auto x = static_cast<double>(value);
  const bool inside = x >= limits.least && x <= limits.most && x > limits.above && x < limits.below;
  INK_CHECK(inside, name, " is ", value, "; expected ", range_text(limits));
}

}  // namespace

std::string range_text(const Limits& limits, bool is_short) {
  std::string text;
  for (const std::string& choice : limits.choices)
    text += (text.empty() ? "" : &choice == &limits.choices.back() ? " or " : ", ") + choice;
  const bool open = std::isfinite(limits.above);
  if (!open && !std::isfinite(limits.least)) return text;
  text = open ? "above " + number(limits.above) : number(limits.least);
  if (is_short && std::min(limits.most, limits.below) >= 1e6)
    return text + (open ? "" : " or more");
  if (std::isfinite(limits.most)) return text + " to " + number(limits.most);
  if (is_short && !open) return text + " to below " + number(limits.below);
  return text + (open ? "" : " or more") + " and below " + number(limits.below);
}

void check_limits(const std::string& name, const Limits& limits, double value) {
  check_number(name, limits, value);
}
void check_limits(const std::string& name, const Limits& limits, int64_t value) {
  check_number(name, limits, value);
}
void check_limits(const std::string& name, const Limits& limits, const std::string& value) {
  for (const std::string& choice : limits.choices)
    if (choice == value) return;
  INK_CHECK(limits.choices.empty(), name, " is '", printable(value, 60), "'; expected ",
            range_text(limits), name.ends_with("model") ? "; your own program adds others" : "");
}

}  // namespace ink
