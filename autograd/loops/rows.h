// Loops of row kernels, which treat each row of n numbers (the last dimension) by itself. The loops
// are vectorised, with f inlined into them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/lanes.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/memory/array.h"

namespace ink {

/// The number of rows of x: all its dimensions but the last.
inline int64_t row_count(const Array& x) { return x.size(-1) ? x.numel() / x.size(-1) : 0; }

/// The distance between rows of x, whose rows are contiguous: x is a matrix, or contiguous.
inline int64_t row_step(const Array& x) { return x.dim() == 2 ? x.strides()[0] : x.size(-1); }

/// Calls f(row) for each row of n elements, in parallel. f should capture by value: every thread
/// works with a copy of its own, whose pointers stay in registers.
template <class F>
void for_each_row(int64_t rows, int64_t n, const F& f) {
  parallel_for(rows, kGrain / std::max<int64_t>(n, 1), [&f](int64_t begin, int64_t end) {
    const F own = f;
    for (int64_t row = begin; row < end; ++row) own(row);
  });
}

/// The same for f(row, buffer), with room for `room` numbers of type C.
template <class C, class F>
void for_each_row(int64_t rows, int64_t n, int64_t room, const F& f) {
  parallel_for(rows, kGrain / std::max<int64_t>(n, 1), [&f, room](int64_t begin, int64_t end) {
    const F own = f;
    const std::unique_ptr<C[]> buffer(new C[static_cast<size_t>(room)]);
    for (int64_t row = begin; row < end; ++row) own(row, buffer.get());
  });
}

/// The rows of x read as C: those of another dtype are converted into a buffer.
template <class C>
class RowsIn {
 public:
  explicit RowsIn(const Array& x)
      : start_(address_of(x)), n_(x.size(-1)), bytes_(row_step(x) * size_of(x.dtype())) {
    if (x.dtype() != dtype_of<C>()) convert_ = detail::conversion(dtype_of<C>(), x.dtype());
  }
  const C* row(int64_t i, C* buffer) const {
    const std::byte* x = start_ + i * bytes_;
    if (convert_ == nullptr) return reinterpret_cast<const C*>(x);
    convert_(buffer, x, n_);
    return buffer;
  }

 private:
  const std::byte* start_;
  int64_t n_, bytes_;
  detail::Convert convert_ = nullptr;
};

/// The rows of y written as C; y may be undefined.
template <class C>
class RowsOut {
 public:
  explicit RowsOut(Array& y) {
    if (!y.defined()) return;
    start_ = writable_address_of(y);
    n_ = y.size(-1);
    bytes_ = row_step(y) * size_of(y.dtype());
    if (y.dtype() != dtype_of<C>()) convert_ = detail::conversion(y.dtype(), dtype_of<C>());
  }
  /// Where to write row i: its place, or the buffer.
  C* row(int64_t i, C* buffer) const {
    return start_ != nullptr && convert_ == nullptr ? place(i) : buffer;
  }
  /// Stores the row that was written, if y is defined.
  void store(int64_t i, const C* row) const {
    if (start_ == nullptr) return;
    if (convert_ != nullptr) return convert_(start_ + i * bytes_, row, n_);
    if (row != place(i)) std::copy_n(row, n_, place(i));
  }

 private:
  C* place(int64_t i) const { return reinterpret_cast<C*>(start_ + i * bytes_); }

  std::byte* start_ = nullptr;
  int64_t n_ = 0, bytes_ = 0;
  detail::Convert convert_ = nullptr;
};

namespace detail {
/// Throws unless all are defined, of one shape, and contiguous or matrices of contiguous rows.
void check_rows(const char* op, std::initializer_list<const Array*> arrays);
}  // namespace detail

/// Rows of y from rows of the x..., all of one shape and one floating dtype, in parallel, computed
/// in C, float or double:  f(n, C* y, const C*... x). Throws on arrays that check_rows() refuses:
/// an op calls contiguous() first, also for the gradient that it is given.
template <class F, class... Inputs>
void map_rows(const char* op, const F& f, Array& y, const Inputs&... x) {
  detail::check_rows(op, {&y, &static_cast<const Array&>(x)...});
  for_computed(op, y.dtype(), [&]<class C>(C) {
    const int64_t n = y.size(-1);
    const auto run = [&]<size_t... K>(std::index_sequence<K...>, const auto&... from) {
      const RowsOut<C> to(y);
      for_each_row<C>(row_count(y), n, (1 + sizeof...(x)) * n, [=](int64_t row, C* buffer) {
        C* out = to.row(row, buffer);
        f(n, out, from.row(row, buffer + (K + 1) * n)...);
        to.store(row, out);
      });
    };
    run(std::index_sequence_for<Inputs...>(), RowsIn<C>(x)...);
  });
}

namespace detail {

// For each f: f(begin), ... f(end - 1) joined in any order. A lane takes four values at a time,
// because one by one each would wait for the last.
template <class C, class Join, size_t... K, class... F>
[[gnu::always_inline]] inline std::array<C, sizeof...(F)> fold_row(int64_t begin, int64_t end,
                                                                   C none, Join join,
                                                                   std::index_sequence<K...>,
                                                                   const F&... f) {
  constexpr int64_t n = 64 / sizeof(C);
  std::array<C, sizeof...(F)> result;
  result.fill(none);
  if (end - begin >= n) {
    C lanes[sizeof...(F)][n];
    (std::fill_n(lanes[K], n, none), ...);
    for (; begin <= end - 4 * n; begin += 4 * n) {
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) {
        const int64_t i = begin + c;
        ((lanes[K][c] =
              join(lanes[K][c], join(join(f(i), f(i + n)), join(f(i + 2 * n), f(i + 3 * n))))),
         ...);
      }
    }
    for (; begin <= end - n; begin += n) {
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) ((lanes[K][c] = join(lanes[K][c], f(begin + c))), ...);
    }
    ((result[K] = join_lanes<n>(lanes[K], join)), ...);
  }
  for (; begin < end; ++begin) ((result[K] = join(result[K], f(begin))), ...);
  return result;
}

}  // namespace detail

/// For each f: the sum of f(i) for i < n. An f should not write, because a loop that writes between
/// additions is no vector code. Blocks of 1024 floats are added up in double, so that a long row is
/// as accurate as a short one.
template <class C, class... F>
[[gnu::always_inline]] inline std::array<C, sizeof...(F)> sums_of(int64_t n, const F&... f) {
  std::array<double, sizeof...(F)> total{};
  std::array<C, sizeof...(F)> result;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = std::min(n, begin + 1024);
    result = detail::fold_row(
        begin, end, C(0), [](C a, C b) { return a + b; }, std::index_sequence_for<F...>{}, f...);
    for (size_t k = 0; k < sizeof...(F); ++k) total[k] += static_cast<double>(result[k]);
  }
  for (size_t k = 0; k < sizeof...(F); ++k) result[k] = static_cast<C>(total[k]);
  return result;
}

/// The sum of f(i) for i < n, likewise.
template <class C, class F>
[[gnu::always_inline]] inline C sum_of(int64_t n, const F& f) {
  return sums_of<C>(n, f)[0];
}

/// The maximum of f(i) for i < n, -inf for n = 0. If one is NaN, the result is any of them.
template <class C, class F>
[[gnu::always_inline]] inline C max_of(int64_t n, F&& f) {
  const auto larger = [](C a, C b) { return a > b ? a : b; };
  return detail::fold_row(0, n, -std::numeric_limits<C>::infinity(), larger,
                          std::index_sequence_for<F>{}, f)[0];
}

/// The sum of the terms f(i), i < n, without the largest one, which is 1. total is the sum of all.
/// If total < one_term, so that total - 1 would lose digits, the terms below 1/2 are added again.
template <class C, class F>
[[gnu::always_inline]] inline C others_of(C total, C one_term, int64_t n, const F& f) {
  if (!(total < one_term)) return total - 1;
  return sum_of<C>(n, [&](int64_t i) {
    const C term = f(i);
    return term < C(0.5) ? term : C(0);
  });
}

/// Sums over all rows, such as the gradient of a weight that multiplies every row.
/// f(row, sums, buffer) adds the row's share to `width` sums, with room for `room` numbers; the
/// totals are returned. Rows are summed in parts of 64, and the parts are added up in double, so
/// the bits do not depend on the number of threads.
template <class C, class F>
Array sum_over_rows(int64_t rows, int64_t width, int64_t room, const F& f) {
  constexpr int64_t kPart = 64;
  const int64_t parts = (rows + kPart - 1) / kPart;
  Array partial = Array::empty({parts, width}, dtype_of<C>()),
        total = Array::empty({width}, dtype_of<C>());
  C *sums = partial.mutable_data<C>(), *totals = total.mutable_data<C>();
  for_each_row<C>(parts, kPart * width, room, [=](int64_t part, C* buffer) {
    const int64_t end = std::min(rows, (part + 1) * kPart);
    std::fill_n(sums + part * width, width, C(0));
    for (int64_t row = part * kPart; row < end; ++row) f(row, sums + part * width, buffer);
  });
  parallel_for(width, kGrain / std::max<int64_t>(parts, 1), [&](int64_t begin, int64_t end) {
    std::vector<double> wide(static_cast<size_t>(end - begin));
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t i = begin; i < end; ++i) wide[i - begin] += sums[part * width + i];
    }
    for (int64_t i = begin; i < end; ++i) totals[i] = static_cast<C>(wide[i - begin]);
  });
  return total;
}

/// sum = part, if the sum is wanted (defined).
template <class C>
void put_part(Array& sum, const C* part) {
  if (sum.defined()) std::copy_n(part, sum.numel(), sum.mutable_data<C>());
}

}  // namespace ink
