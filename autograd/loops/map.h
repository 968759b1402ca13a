// map: applies a function to every element of arrays of any layout.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/base/device_function.h"
#include "autograd/base/dtype.h"
#include "autograd/loops/strided_loop.h"

namespace ink {

namespace detail {

inline constexpr int64_t kChunk = 256;  // elements gathered at a time: well inside the first cache
// Shorter rows are gathered into chunks: below 32 elements, or below 16 if a row is whole vectors.
// Loops over bytes go 64 elements at a time, and over what is left one by one.
inline constexpr int64_t kShortRow = 32, kShortVectorRow = 16, kShortByteRow = 64;

// Reads an element. A bool is read as a byte, because the compiler does not vectorise loads of
// bool.
template <class T>
INK_DEVICE inline T load(const T* x) {
  return *x;
}
INK_DEVICE inline bool load(const bool* x) { return *reinterpret_cast<const uint8_t*>(x) != 0; }

// The one loop of an op and a dtype; all layouts come down to it. No element depends on another,
// even if y is one of the inputs (the same elements in the same places): `omp simd` says so.
template <class F, class To, class... From>
[[gnu::always_inline]] inline void map_row(const F& f, int64_t n, To* y, const From*... x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = f(load(x + i)...);
}

// Calls row(y, x...) with the beginnings of all rows.
template <class Row, int N, class... T>
[[gnu::always_inline]] inline void for_rows(const Row& row, const Rows<N>& rows, T*... p) {
  const auto call = [&]<size_t... K>(std::index_sequence<K...>) {
    for (int64_t r = 0; r < rows.count; ++r) row((p + r * rows.next[K])...);
  };
  call(std::index_sequence_for<T...>{});
}

template <class F, class To, class... From>
void map_contiguous(const void* function, const Rows<1 + sizeof...(From)>& rows, To* y,
                    const From*... x) {
  const F f = *static_cast<const F*>(function);
  const int64_t n = rows.size;
  for_rows([=](To* to, const From*... from) { map_row(f, n, to, from...); }, rows, y, x...);
}
// The same for an f that is right where f.fits(x...). Where a chunk has other elements, Beyond
// computes the chunk. Neither has state.
template <class F, class Beyond, class To, class... From>
void map_contiguous_within(const void*, const Rows<1 + sizeof...(From)>& rows, To* y,
                           const From*... x) {
  using C = compute_t<std::tuple_element_t<0, std::tuple<From...>>>;
  using Count = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;  // as wide as an element
  const F f;
  const auto row = [&](To* to, const From*... from) {
    for (int64_t begin = 0; begin < rows.size; begin += kChunk) {
      const int64_t count = std::min(kChunk, rows.size - begin);
      Count others = 0;
      for (int64_t i = 0; i < count; ++i) others += f.fits(from[begin + i]...) ? 0 : 1;
      if (others == 0) {
        map_row(f, count, to + begin, from + begin...);
      } else {
        const Beyond beyond;
        map_contiguous<Beyond>(&beyond, {1, count}, to + begin, from + begin...);
      }
    }
  };
  for_rows(row, rows, y, x...);
}
// The same for two inputs, of which one is a number in each row, unless F then becomes no vector
// code.
template <class F>
inline constexpr bool kTakesNumbers = true;
template <class F, class To, class A, class B>
void map_first_constant(const void* function, const Rows<3>& rows, To* y, const A* a, const B* b) {
  const F f = *static_cast<const F*>(function);
  const int64_t n = rows.size;
  const auto row = [=](To* to, const A* number, const B* x) {
    map_row([f, first = load(number)](B v) { return f(first, v); }, n, to, x);
  };
  for_rows(row, rows, y, a, b);
}
template <class F, class To, class A, class B>
void map_second_constant(const void* function, const Rows<3>& rows, To* y, const A* a, const B* b) {
  const F f = *static_cast<const F*>(function);
  const int64_t n = rows.size;
  const auto row = [=](To* to, const A* x, const B* number) {
    map_row([f, second = load(number)](A v) { return f(v, second); }, n, to, x);
  };
  for_rows(row, rows, y, a, b);
}

// The code around the loops knows only element types. That keeps the library small and builds
// quick.
template <class To, class... From>
using MapContiguous = void (*)(const void* function, const Rows<1 + sizeof...(From)>& rows, To* y,
                               const From*... x);
template <class To, class... From>
struct MapLoops {
  MapContiguous<To, From...> contiguous, first_constant = nullptr, second_constant = nullptr;
};

// Where the elements of a run lie: `width` of them next to each other or `inner` apart, and again
// from `stride` on.
struct RunSteps {
  int64_t width, inner, stride;
  bool contiguous() const { return stride == width && (width == 1 || inner == 1); }
  bool constant() const { return stride == 0 && width == 1; }
  // Calls f(i, where) for elements i = 0 ... n - 1 of a chunk, which begins at a multiple of width.
  template <class F>
  void for_each(int64_t begin, int64_t n, F&& f) const {
    if (width == 1) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < n; ++i) f(i, (begin + i) * stride);
      return;
    }
    int64_t at = begin / width * stride;
    for (int64_t i = 0; i < n; i += width, at += stride) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < width; ++k) f(i + k, at + k * inner);
    }
  }
};

// Shows a run of an input as contiguous memory: others are copied, a chunk at a time.
template <class T>
class Run {
 public:
  Run(const T* start, RunSteps steps, int64_t n) : start_(start), steps_(steps) {
    constant_ = steps.constant();
    if (constant_) std::fill_n(buffer_, std::min(kChunk, n), *start);
  }
  const T* chunk(int64_t begin, int64_t n) {
    if (steps_.contiguous()) return start_ + begin;
    if (!constant_)
      steps_.for_each(begin, n, [this](int64_t i, int64_t at) { buffer_[i] = start_[at]; });
    return buffer_;
  }

 private:
  const T* start_;
  RunSteps steps_;
  bool constant_;
  T buffer_[kChunk];
};

template <class To, class... From>
void map_strided(MapContiguous<To, From...> run, const void* f, int64_t n, To* y, RunSteps steps,
                 Run<From>&&... x) {
  To buffer[kChunk];
  const int64_t chunk = kChunk / steps.width * steps.width;
  for (int64_t begin = 0; begin < n; begin += chunk) {
    const int64_t count = std::min(chunk, n - begin);
    const bool direct = steps.contiguous();
    run(f, {1, count}, direct ? y + begin : buffer, x.chunk(begin, count)...);
    if (!direct) steps.for_each(begin, count, [=](int64_t i, int64_t at) { y[at] = buffer[i]; });
  }
}

template <class To, class... From, size_t... K>
void map_rows(std::index_sequence<K...>, MapLoops<To, From...> loops, const void* f, Array& y,
              const std::array<const Array*, sizeof...(From)>& inputs) {
  StridedLoop<1 + sizeof...(From)> loop(y.shape(), {&y, inputs[K]...});
  std::array<int64_t, 1 + sizeof...(From)> inner{};
  const bool whole_vectors = loop.sizes.back() % kShortVectorRow == 0;
  constexpr bool bytes = std::min({sizeof(To), sizeof(From)...}) == 1;
  const int64_t width = loop.take_short_rows(bytes           ? kShortByteRow
                                             : whole_vectors ? kShortVectorRow
                                                             : kShortRow,
                                             inner);
  const auto steps = [&](size_t k) { return RunSteps{width, inner[k], loop.inner_stride(k)}; };
  const std::tuple<const From*...> in{inputs[K]->template data<From>()...};
  To* out = y.mutable_data<To>();
  const auto is = [&](size_t k) { return steps(k).contiguous(); };
  auto direct = width == 1 && is(0) && (... && is(K + 1)) ? loops.contiguous : nullptr;
  if (loops.first_constant != nullptr && width == 1 && is(0)) {
    if (steps(1).constant() && is(2)) direct = loops.first_constant;
    if (is(1) && steps(2).constant()) direct = loops.second_constant;
  }
  constexpr size_t kBytes = std::max({sizeof(To), sizeof(From)...});
  const int64_t grain = kGrain / width / (kBytes == 8 ? 2 : 1);  // 8 bytes take twice as long as 4
  if (direct != nullptr) {
    const auto rows_of = [&](const auto& offset, const auto& rows) {
      direct(f, rows, out + offset[0], (std::get<K>(in) + offset[K + 1])...);
    };
    return loop.for_each_rows(rows_of, grain);
  }
  const auto row = [&](const auto& offset, int64_t runs) {
    map_strided<To, From...>(
        loops.contiguous, f, runs * width, out + offset[0], steps(0),
        Run<From>(std::get<K>(in) + offset[K + 1], steps(K + 1), runs * width)...);
  };
  loop.for_each_row(row, grain);
}

template <class F, class To, class... From>
void map_typed(To (F::*)(From...) const, const F& f, Array& y,
               const std::array<const Array*, sizeof...(From)>& inputs) {
  MapLoops<To, From...> loops{&map_contiguous<F, To, From...>};
  if constexpr (sizeof...(From) == 2 && kTakesNumbers<F>)
    loops = {&map_contiguous<F, To, From...>, &map_first_constant<F, To, From...>,
             &map_second_constant<F, To, From...>};
  map_rows<To, From...>(std::index_sequence_for<From...>{}, loops, &f, y, inputs);
}

template <class F, class Beyond, class To, class... From>
void map_within_typed(To (F::*)(From...) const, Array& y,
                      const std::array<const Array*, sizeof...(From)>& inputs) {
  map_rows<To, From...>(std::index_sequence_for<From...>{},
                        MapLoops<To, From...>{&map_contiguous_within<F, Beyond, To, From...>},
                        nullptr, y, inputs);
}

}  // namespace detail

/// y = f(inputs...), element by element, for arrays of one shape (expanded where they broadcast)
/// and any layouts, in parallel. The parameter types and result of f are the element types:
///   map(y, [](float a, bool m) { return m ? 0 : a; }, x, mask);
/// y may be one of the inputs.
template <class F, class... Inputs>
void map(Array& y, F f, const Inputs&... inputs) {
  detail::map_typed(&F::operator(), f, y, {&inputs...});
}

/// The same for an f that becomes vector code, but is right only where f.fits(elements...), and
/// another that is right everywhere.
template <class F, class Beyond, class... Inputs>
void map_within(Array& y, F, Beyond, const Inputs&... inputs) {
  detail::map_within_typed<F, Beyond>(&F::operator(), y, {&inputs...});
}

}  // namespace ink
