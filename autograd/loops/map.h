// map: applies a function to every element of arrays of any layout.
//
// What is compiled for each op and dtype is one loop over elements that follow each other. All
// other layouts and dtypes come down to it, a chunk at a time (map.cpp).
#pragma once

#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"
#include "autograd/memory/array.h"

namespace ink {

namespace detail {

// Computes y[0 .. n) from the inputs x[k] by *f. An input is n elements, or one number that stands
// there kMapBlock times. After a block, the row goes on by step[k] elements: kMapBlock or 0.
using MapRow = void (*)(const void* f, int64_t n, void* y, const void* const* x,
                        const int64_t* step);
inline constexpr int64_t kMapBlock = 64;

// An array, and the dtype of the elements that the row takes.
struct MapInput {
  const Array& array;
  DType dtype;
};

// The row over all elements, in parallel. y_dtype: what it writes. At most three inputs.
void map_rows(MapRow row, const void* f, Array& y, DType y_dtype,
              std::initializer_list<MapInput> inputs);

// Reads an element. A bool is read as a byte, because the compiler does not vectorise loads of
// bool.
template <class T>
INK_DEVICE inline T load(const T* x) {
  return *x;
}
INK_DEVICE inline bool load(const bool* x) { return *reinterpret_cast<const uint8_t*>(x) != 0; }

// No element depends on another, even if y is one of the inputs (the same elements in the same
// places): `omp simd` says so.
template <class F, class To, class... From>
[[gnu::always_inline]] inline void map_elements(const F& f, int64_t n, To* y, const From*... x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = f(load(x + i)...);
}

// The rows of an f, and of an F that is right where F::fits(x...): a block with other elements is
// computed by Beyond.
template <class To, class... From>
struct MapRows {
  template <class F>
  static void of(const void* f, int64_t n, void* y, const void* const* x, const int64_t* step) {
    const F own = *static_cast<const F*>(f);
    const auto block = [own](int64_t count, To* to, const From*... from) {
      map_elements(own, count, to, from...);
    };
    for_blocks(block, n, y, x, step, std::index_sequence_for<From...>());
  }

  template <class F, class Beyond>
  static void of_within(const void*, int64_t n, void* y, const void* const* x,
                        const int64_t* step) {
    const auto block = [](int64_t count, To* to, const From*... from) {
      using Element = std::tuple_element_t<0, std::tuple<From...>>;
      std::conditional_t<sizeof(Element) == 8, int64_t, int32_t> others = 0;  // as wide
      for (int64_t i = 0; i < count; ++i) others += F::fits(from[i]...) ? 0 : 1;
      if (others == 0) {
        map_elements(F(), count, to, from...);
      } else {
        map_elements(Beyond(), count, to, from...);
      }
    };
    for_blocks(block, n, y, x, step, std::index_sequence_for<From...>());
  }

  template <class... Inputs>
  static void run(MapRow row, const void* f, Array& y, const Inputs&... inputs) {
    map_rows(row, f, y, dtype_of<To>(), {MapInput{inputs, dtype_of<From>()}...});
  }

 private:
  // A block's length is known to the compiler, but for the last one's.
  template <class Block, size_t... K>
  [[gnu::always_inline]] static void for_blocks(const Block& block, int64_t n, void* y,
                                                const void* const* x, const int64_t* step,
                                                std::index_sequence<K...>) {
    To* to = static_cast<To*>(y);
    std::tuple<const From*...> from{static_cast<const From*>(x[K])...};
    for (; n >= kMapBlock; n -= kMapBlock, to += kMapBlock) {
      block(kMapBlock, to, std::get<K>(from)...);
      ((std::get<K>(from) += step[K]), ...);
    }
    if (n > 0) block(n, to, std::get<K>(from)...);
  }
};

template <class F, class To, class... From>
MapRows<To, From...> rows_of(To (F::*)(From...) const);

}  // namespace detail

/// The number as an array of that dtype and shape, for map.
Array repeated(double number, DType dtype, const Shape& shape);

/// y = f(inputs...), element by element, for arrays of one shape (expanded where they broadcast)
/// and any layouts, in parallel. f computes with the types of its parameters and result, and
/// elements of other dtypes are converted:
///   map(y, [](float a, bool m) { return m ? 0 : a; }, x, mask);
/// y may be one of the inputs.
template <class F, class... Inputs>
void map(Array& y, const F& f, const Inputs&... inputs) {
  using Rows = decltype(detail::rows_of(&F::operator()));
  Rows::run(Rows::template of<F>, &f, y, inputs...);
}

/// The same for an F that becomes vector code, but is right only where F::fits(elements...), and
/// another that is right everywhere.
template <class F, class Beyond, class... Inputs>
void map_within(Array& y, const Inputs&... inputs) {
  using Rows = decltype(detail::rows_of(&F::operator()));
  Rows::run(Rows::template of_within<F, Beyond>, nullptr, y, inputs...);
}

}  // namespace ink
