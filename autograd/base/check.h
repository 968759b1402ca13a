// Errors: an exception type, and one macro.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>

namespace ink {

/// The exception inkling throws. Its text reads "op: expected X, got Y", with shapes and values.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// An error that a device's runtime or its libraries reported.
class DeviceError : public Error {
 public:
  using Error::Error;
};

namespace detail {
/// A piece of an error's text: a value of any type that prints. It must not outlive its statement.
class Piece {
 public:
  Piece(const char* text)
      : value_(text), print_([](auto& out, auto* x) { out << static_cast<const char*>(x); }) {}
  template <class T>
  Piece(const T& value)
      : value_(&value), print_([](auto& out, auto* x) { out << *static_cast<const T*>(x); }) {}
  void print(std::ostream& out) const { print_(out, value_); }

 private:
  const void* value_;
  void (*print_)(std::ostream&, const void*);
};

std::string joined(std::initializer_list<Piece> pieces);

template <class Thrown = Error>
[[noreturn]] void fail(std::initializer_list<Piece> pieces) {
  throw Thrown(joined(pieces));
}
}  // namespace detail

/// f(), with `where: ` put before the text of an Error that leaves it.
template <class F>
auto with_prefix(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(where + ": " + error.what());
  }
}

}  // namespace ink

/// Throws ink::Error with the remaining arguments streamed together unless the condition holds:
///   INK_CHECK(x.dim() == 2, "linear: expected a matrix, got ", x.shape());
#define INK_CHECK(condition, ...)         \
  do {                                    \
    if (!(condition)) [[unlikely]]        \
      ::ink::detail::fail({__VA_ARGS__}); \
  } while (false)
