// Errors: an exception type, and one macro.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ink {

/// The one exception inkling throws. Its text reads "op: expected X, got Y" and names shapes and
/// values.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// One that a device's runtime or libraries reported, whatever was asked of them.
class DeviceError : public Error {
 public:
  using Error::Error;
};

namespace detail {
template <class Thrown = Error, class... Args>
[[noreturn]] void fail(const Args&... args) {
  std::ostringstream text;
  text << std::boolalpha;
  (text << ... << args);
  throw Thrown(text.str());
}
}  // namespace detail

}  // namespace ink

/// Throws ink::Error with the remaining arguments streamed together unless the condition holds:
///   INK_CHECK(x.dim() == 2, "linear: expected a matrix, got ", x.shape());
#define INK_CHECK(condition, ...)       \
  do {                                  \
    if (!(condition)) [[unlikely]]      \
      ::ink::detail::fail(__VA_ARGS__); \
  } while (false)
