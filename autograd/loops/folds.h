// How reductions combine numbers, for kernels of both devices.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"

namespace ink {

/// int64_t for integers and bool, double for floats.
template <class T>
using wide_t = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

/// A reduction combines with one operation, join: eight values at a time in a tree, in type Near,
/// and the results of that in type Far. Far is double for sums of floats, so that the error does
/// not grow with the length.
template <class T>
struct Sum {
  using Near = std::conditional_t<std::is_same_v<T, bool>, int64_t, compute_t<T>>;
  using Far = wide_t<T>;
  INK_DEVICE static Near load(T x) { return static_cast<Near>(x); }
  INK_DEVICE static Far none() { return 0; }
  template <class V>
  INK_DEVICE static V join(V a, V b) {
    return a + b;
  }
  INK_DEVICE static Far repeated(Far a, int64_t times) { return a * static_cast<Far>(times); }
};

template <class T>
struct SumOfSquares : Sum<T> {
  using typename Sum<T>::Near;
  INK_DEVICE static Near load(T x) { return static_cast<Near>(x) * static_cast<Near>(x); }
};

template <class T>
struct Prod {
  using Near = wide_t<T>;
  using Far = wide_t<T>;
  INK_DEVICE static Near load(T x) { return static_cast<Near>(static_cast<compute_t<T>>(x)); }
  INK_DEVICE static Far none() { return 1; }
  INK_DEVICE static Far join(Far a, Far b) { return a * b; }
  INK_DEVICE static Far repeated(Far a, int64_t times) {
    Far result = 1;  // by squaring
    for (; times > 0; times /= 2, a *= a) {
      if (times % 2) result *= a;
    }
    return result;
  }
};

/// The largest or smallest, or NaN if one is NaN. For bools, Max is `any` and Min is `all`.
template <class T, bool largest>
struct Extreme {
  using Near = std::conditional_t<std::is_same_v<T, bool>, uint8_t, compute_t<T>>;
  using Far = Near;
  using Limits = std::numeric_limits<Near>;
  INK_DEVICE static Near load(T x) { return static_cast<Near>(x); }
  INK_DEVICE static Far none() {
    if constexpr (Limits::has_infinity) return largest ? -Limits::infinity() : Limits::infinity();
    return largest ? Limits::lowest() : Limits::max();
  }
  INK_DEVICE static Far of_numbers(Far a, Far b) {  // b if either is NaN
    return (largest ? a > b : a < b) ? a : b;
  }
  INK_DEVICE static Far join(Far a, Far b) {
    const Far best = of_numbers(a, b);
    return a != a ? a : best;
  }
  INK_DEVICE static Far repeated(Far a, int64_t) { return a; }
};
template <class T>
using Max = Extreme<T, true>;
template <class T>
using Min = Extreme<T, false>;

/// Is a larger (smaller) than b? NaN counts as larger (smaller) than any number.
template <bool largest, class V>
INK_DEVICE inline bool better(V a, V b) {
  return (largest ? a > b : a < b) || (a != a && b == b);
}

}  // namespace ink
