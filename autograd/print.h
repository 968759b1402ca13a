// print, and how tensors look in it.
#pragma once

#include <iostream>
#include <optional>
#include <type_traits>

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

/// What set_printoptions changes; what is left out stays as it is.
struct PrintChanges {
  std::optional<int> precision = {};
  std::optional<int64_t> threshold = {}, edgeitems = {};
  std::optional<int> linewidth = {};
  std::optional<bool> sci_mode = {};
};
void set_printoptions(const PrintChanges& changes);

namespace detail {
void print_shape(std::ostream& out, const Shape& shape);
}

/// Prints its arguments as Python's print does: a space between them, a shape as
/// torch.Size([2, 3]), a bool as True.
template <class... Args>
void print(const Args&... args) {
  const char* between = "";
  [[maybe_unused]] const auto one = [&]<class T>(const T& arg) {
    std::cout << between;
    between = " ";
    if constexpr (std::is_same_v<T, Shape>) {
      detail::print_shape(std::cout, arg);
    } else if constexpr (std::is_same_v<T, bool>) {
      std::cout << (arg ? "True" : "False");
    } else {
      std::cout << arg;
    }
  };
  (one(args), ...);
  std::cout << "\n";
}

}  // namespace ink
