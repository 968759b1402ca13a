// print, and how tensors look in it.
#pragma once

#include <iostream>
#include <optional>
#include <type_traits>
#include <utility>

#include "autograd/base/text.h"
#include "autograd/tensor.h"

namespace ink {

/// Digits and widths of printed tensors, as torch.set_printoptions.
struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // more elements than this are summarised with "..."
  int64_t edgeitems = 3;     // shown at each end of a summarised dimension
  int linewidth = 80;
  std::optional<bool> sci_mode = {};  // scientific notation: on, off or (default) as needed
};
PrintOptions& print_options();

/// What set_printoptions changes; fields that are left out stay as they are.
struct PrintChanges {
  std::optional<int> precision = {};
  std::optional<int64_t> threshold = {}, edgeitems = {};
  std::optional<int> linewidth = {};
  std::optional<bool> sci_mode = {};
};
void set_printoptions(const PrintChanges& changes);

namespace detail {
void print_shape(std::ostream& out, const Shape& shape);

template <class T>
void print_one(std::ostream& out, const T& arg) {
  if constexpr (std::is_same_v<T, Shape>) {
    print_shape(out, arg);
  } else if constexpr (std::is_same_v<T, bool>) {
    out << (arg ? "True" : "False");
  } else if constexpr (requires { out << arg; }) {
    out << arg;
  } else if constexpr (requires { arg.begin(); }) {
    const char* between = "[";
    for (const auto& entry : arg) {
      out << std::exchange(between, ", ");
      print_one(out, entry);
    }
    out << (arg.empty() ? "[]" : "]");
  } else {
    static_assert(std::is_void_v<T>, "print: expected a type with operator<<, or a list of them");
  }
}
}  // namespace detail

/// Prints its arguments as Python's print does: a space between them, a shape as
/// torch.Size([2, 3]), a bool as True, a vector as [1, 2].
template <class... Args>
void print(const Args&... args) {
  TextStream out;
  out.copyfmt(std::cout);
  out.imbue(std::locale::classic());
  [[maybe_unused]] const char* between = "";
  ((out << std::exchange(between, " "), detail::print_one(out, args)), ...);
  std::cout << out.str() << "\n";
}

}  // namespace ink
