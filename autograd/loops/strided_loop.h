// Loops over several arrays of one shape and any strides, for elementwise kernels and copies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "autograd/base/dtype.h"
#include "autograd/base/parallel.h"
#include "autograd/memory/array.h"

namespace ink {

/// The first element of each line of x along `dim`: for a loop over lines.
inline Array first_of_lines(const Array& x, int64_t dim) {
  Layout layout = x.layout();
  layout.sizes[dim] = 1;
  return x.seen_as(layout);
}

/// x seen with `shape` and stride 0 along `dim`. In loops over ids, the id gives the step along it.
inline Array constant_along(const Array& x, int64_t dim, const Shape& shape) {
  Layout layout{shape, x.strides(), x.layout().offset};
  layout.strides[dim] = 0;
  return x.seen_as(layout);
}

/// The first element of x, for reading, of whatever dtype.
inline std::byte* address_of(const Array& x) {
  return static_cast<std::byte*>(x.storage()->data) + x.layout().offset * size_of(x.dtype());
}
/// The same for writing: counts as a write.
inline std::byte* writable_address_of(Array& y) {
  for_any(y.dtype(), [&]<class T>(T) { y.mutable_data<T>(); });
  return address_of(y);
}

/// Calls f(Bits{}) with the unsigned integer of so many bytes, for code that only moves elements.
template <class F>
void for_bits(int64_t bytes, F&& f) {
  if (bytes == 8) return f(uint64_t{});
  if (bytes == 4) return f(uint32_t{});
  if (bytes == 2) return f(uint16_t{});
  f(uint8_t{});
}

/// `count` rows of `size` elements, `next` elements from one row to the next, for N operands.
template <int N>
struct Rows {
  int64_t count, size;
  std::array<int64_t, N> next{};
};

/// The loops over N operands of one shape, in the order in which the first one lies in memory.
/// Neighbouring dimensions are joined where one stride serves both, for every operand.
template <int N>
struct StridedLoop {
  Shape sizes;
  std::array<Shape, N> strides;  // in elements, innermost dimension last

  StridedLoop(const Shape& shape, const std::array<const Array*, N>& operands) {
    for (const int64_t d : in_order(*operands[0])) {
      if (shape[d] == 1) continue;
      if (!sizes.empty() && joins(d, operands)) {
        sizes.back() *= shape[d];
        for (size_t k = 0; k < N; ++k) strides[k].back() = operands[k]->strides()[d];
      } else {
        sizes.push_back(shape[d]);
        for (size_t k = 0; k < N; ++k) strides[k].push_back(operands[k]->strides()[d]);
      }
    }
    if (sizes.empty()) {
      sizes.push_back(shape.numel());
      for (Shape& s : strides) s.push_back(1);
    }
  }

  /// Calls f(offsets, rows) for neighbouring rows along the innermost dimension, whole or in part,
  /// in parallel; offsets of the first element, one per operand.
  template <class F>
  void for_each_rows(const F& f, int64_t grain = kGrain) const {
    const int64_t inner = sizes.back(), last = sizes.size() - 2;
    parallel_for(sizes.numel(), grain, [this, f, inner, last](int64_t begin, int64_t end) {
      Position at(*this, begin / inner);
      Rows<N> rows{};
      for (size_t k = 0; k < N && last >= 0; ++k) rows.next[k] = strides[k][last];
      for (int64_t column = begin % inner; begin < end; column = 0) {
        std::array<int64_t, N> offsets = at.offsets;
        for (size_t k = 0; k < N; ++k) offsets[k] += column * strides[k].back();
        const bool whole = column == 0 && end - begin >= inner;
        const int64_t left = last < 0 ? 1 : sizes[last] - at.index[last];
        rows.count = whole ? std::min(left, (end - begin) / inner) : 1;
        rows.size = whole ? inner : std::min(inner - column, end - begin);
        f(offsets, rows);
        begin += rows.count * rows.size;
        at.next(rows.count);
      }
    });
  }

  /// Calls row(offsets, count) for each of them.
  template <class Row>
  void for_each_row(const Row& row, int64_t grain = kGrain) const {
    for_each_rows(
        [row](std::array<int64_t, N> offsets, const Rows<N>& rows) {
          for (int64_t i = 0; i < rows.count; ++i) {
            row(offsets, rows.size);
            for (size_t k = 0; k < N; ++k) offsets[k] += rows.next[k];
          }
        },
        grain);
  }

  /// If rows are shorter than `least`, makes the next dimension the innermost (the longest one, if
  /// that is short, too), and returns how many elements each of its elements then stands for, and
  /// their strides; else 1.
  int64_t take_short_rows(int64_t least, std::array<int64_t, N>& inner) {
    const int64_t last = sizes.size() - 1, width = sizes.back();
    if (last == 0 || width >= least || width == 0) return 1;
    sizes.erase(last);
    for (size_t k = 0; k < N; ++k) {
      inner[k] = strides[k].back();
      strides[k].erase(last);
    }
    const int64_t longest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
    if (sizes.back() < least) {
      std::swap(sizes[longest], sizes.back());
      for (Shape& s : strides) std::swap(s[longest], s.back());
    }
    return width;
  }

  int64_t inner_stride(size_t operand) const { return strides[operand].back(); }

  /// Steps through the rows in order.
  struct Position {
    Position(const StridedLoop& loop, int64_t row)
        : loop_(loop), index(Shape::filled(loop.sizes.size(), 0)) {
      for (int64_t d = loop.sizes.size() - 2; d >= 0; --d) {
        index[d] = row % loop.sizes[d];
        row /= loop.sizes[d];
        for (size_t k = 0; k < N; ++k) offsets[k] += index[d] * loop.strides[k][d];
      }
    }
    /// Goes on by that many rows of the innermost loop over rows, at most to its end.
    void next(int64_t rows = 1) {
      for (int64_t d = loop_.sizes.size() - 2; d >= 0; --d, rows = 1) {
        const bool wraps = (index[d] += rows) == loop_.sizes[d];
        const int64_t steps = wraps ? rows - loop_.sizes[d] : rows;
        for (size_t k = 0; k < N; ++k) offsets[k] += steps * loop_.strides[k][d];
        if (!wraps) return;
        index[d] = 0;
      }
    }

   private:
    const StridedLoop& loop_;

   public:
    Shape index;                       // of the row; its last entry is 0
    std::array<int64_t, N> offsets{};  // of the row's first element
  };

 private:
  // The dimensions of x, the longest stride first. As they are if elements are repeated.
  static Shape in_order(const Array& x) {
    Shape dims = x.shape();
    for (int64_t d = 0; d < dims.size(); ++d) dims[d] = d;
    const auto longer = [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; };
    const bool repeated = std::any_of(x.strides().begin(), x.strides().end(),
                                      [](int64_t stride) { return stride == 0; });
    if (!repeated && !std::is_sorted(dims.begin(), dims.end(), longer))
      std::stable_sort(dims.begin(), dims.end(), longer);
    return dims;
  }

  // Does dimension d continue the last one kept? (The last stride must be size times this one, for
  // every operand.)
  bool joins(int64_t d, const std::array<const Array*, N>& operands) const {
    for (size_t k = 0; k < N; ++k) {
      if (strides[k].back() != operands[k]->strides()[d] * operands[k]->shape()[d]) return false;
    }
    return true;
  }
};

}  // namespace ink
