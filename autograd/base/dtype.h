// Element types, and the step from a run-time DType to a compile-time C++ type.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ostream>
#include <type_traits>

#include "autograd/base/check.h"

namespace ink {

/// bfloat16: the upper half of a float. Arithmetic happens in float; conversion rounds to nearest
/// even. (Always inlined, because otherwise the loop around a conversion may stay scalar;
/// constexpr, because nvcc then compiles it for a GPU, too.)
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  [[gnu::always_inline]] constexpr bfloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = value != value ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);
    bits = static_cast<uint16_t>(rounded >> 16);
  }
  [[gnu::always_inline]] constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

enum class DType : uint8_t { f32, f64, bf16, i64, boolean };

inline constexpr DType f32 = DType::f32, f64 = DType::f64, bf16 = DType::bf16, i64 = DType::i64,
                       boolean = DType::boolean;

/// A number as it was written: true, 2 or 2.0. As in PyTorch (at::Scalar), its kind takes part in
/// the choice of an op's dtype.
struct Scalar {
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  constexpr Scalar(Number number)
      : dtype(std::is_same_v<Number, bool> ? DType::boolean
              : std::is_integral_v<Number> ? DType::i64
                                           : DType::f64),
        value(static_cast<double>(number)) {
    if constexpr (std::is_integral_v<Number>) {
      integer = static_cast<int64_t>(number);
      INK_CHECK(std::is_signed_v<Number> || integer >= 0,
                "expected a number that int64 holds, got ", number);
    }
  }
  template <class T>
  requires(std::is_array_v<T> || std::is_pointer_v<T> || requires(const T& list) { list.begin(); })
      Scalar(const T&)
  = delete;             // expected a tensor or a number
  DType dtype;          // boolean, i64 or f64
  double value;         // the nearest one
  int64_t integer = 0;  // of boolean and i64
  /// Is `value` the number itself? Not every i64 beyond 2^53 is a double.
  bool exact() const {
    return dtype != i64 || (value < 0x1p63 && static_cast<int64_t>(value) == integer);
  }
  friend std::ostream& operator<<(std::ostream& out, const Scalar& x) {
    return out << (x.dtype == f64 ? detail::joined({x.value}) : detail::joined({x.integer}));
  }
};

/// Bytes per element.
inline int64_t size_of(DType dtype) {
  constexpr int64_t sizes[] = {4, 8, 2, 8, 1};
  return sizes[static_cast<int>(dtype)];
}
inline bool is_floating(DType dtype) { return dtype <= DType::bf16; }

/// PyTorch's name: float32, float64, bfloat16, int64, bool.
inline const char* name_of(DType dtype) {
  constexpr const char* names[] = {"float32", "float64", "bfloat16", "int64", "bool"};
  return names[static_cast<int>(dtype)];
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

/// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of() {
  constexpr bool kinds[] = {std::is_same_v<T, float>, std::is_same_v<T, double>,
                            std::is_same_v<T, bfloat16>, std::is_same_v<T, int64_t>,
                            std::is_same_v<T, bool>};  // in DType's order
  constexpr int kind = static_cast<int>(std::find(kinds, kinds + 5, true) - kinds);
  static_assert(kind < 5, "elements are float, double, bfloat16, int64_t or bool");
  return static_cast<DType>(kind);
}

/// Throws "op: ..." if `number` is out of the dtype's range; every floating dtype has infinities
/// and NaN. elements: how many are written. In bf16 a single one overflows to infinity, as in
/// PyTorch.
inline void check_in_range(const char* op, const Scalar& number, DType dtype,
                           int64_t elements = 0) {
  if (dtype == DType::f64 || dtype == DType::boolean) return;
  if (dtype == DType::bf16 && elements == 1) return;
  const double limit = dtype == DType::f32    ? 0x1.fffffep127
                       : dtype == DType::bf16 ? 0x1.fep127
                                              : 0x1p63;
  const bool inside =
      dtype != DType::i64
          ? !(number.value > limit || number.value < -limit) || number.value - number.value != 0
          : number.dtype != DType::f64 || (number.value >= -limit && number.value < limit);
  INK_CHECK(inside, op, ": ", number, " is out of range for ", dtype);
}

/// The type in which arithmetic on T happens: float for bfloat16, T itself otherwise.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

/// Calls f(T{}) with the C++ type of a floating dtype:
///   for_float("exp", x.dtype(), [&]<class T>(T) { ... });
template <class F>
auto for_float(const char* op, DType dtype, F&& f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  INK_CHECK(dtype == DType::bf16, op, ": expected a floating dtype, got ", dtype);
  return f(bfloat16{});
}

/// The same over all five dtypes.
template <class F>
auto for_any(DType dtype, F&& f) {
  if (dtype == DType::i64) return f(int64_t{});
  if (dtype == DType::boolean) return f(bool{});
  return for_float("", dtype, f);
}

}  // namespace ink
