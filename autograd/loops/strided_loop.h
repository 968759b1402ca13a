// Loops over several arrays of one shape and any strides, for elementwise kernels and copies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "autograd/base/dtype.h"
#include "autograd/base/parallel.h"
#include "autograd/memory/array.h"

namespace ink {

/// x's dimensions, the longest stride first; equal strides stay in their order.
Shape by_stride(const Array& x);
/// New memory without gaps, in which dimensions lie in this order, the outermost first.
Array empty_in_order(const Shape& sizes, const Shape& order, DType dtype, Device device);

/// Those elements of x whose index along `dim` is first ... first + count - 1.
inline Array part_along(const Array& x, int64_t dim, int64_t first, int64_t count) {
  Layout layout = x.layout();
  layout.sizes[dim] = count;
  layout.offset += first * layout.strides[dim];
  return x.seen_as(layout);
}

/// The first element of each line of x along `dim`: for a loop over lines.
inline Array first_of_lines(const Array& x, int64_t dim) { return part_along(x, dim, 0, 1); }

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
std::byte* writable_address_of(Array& y);

/// Calls f(Bits{}) with the unsigned integer of so many bytes, for code that only moves elements.
template <class F>
void for_bits(int64_t bytes, F&& f) {
  if (bytes == 8) return f(uint64_t{});
  if (bytes == 4) return f(uint32_t{});
  if (bytes == 2) return f(uint16_t{});
  f(uint8_t{});
}

/// So many elements, moved at once: their number is known to the compiler.
template <int N>
struct Piece {
  template <class Bits>
  static void copy(Bits* y, const Bits* x) {
    std::copy_n(x, N, y);
  }
  template <class Bits>
  static void fill(Bits* y, Bits x) {
    std::fill_n(y, N, x);
  }
  /// Calls f(k) for pieces that begin at element k of a row of n >= N elements, and cover it. The
  /// last one ends where the row ends: some of its elements may have been in the one before.
  template <class F>
  static void cover(int64_t n, F&& f) {
    for (int64_t k = 0; k < n - N; k += N) f(k);
    f(n - N);
  }
};

/// Calls f(piece) with the longest piece, of at most 16 elements, that a row of n >= 1 holds.
template <class F>
void with_piece(int64_t n, F&& f) {
  if (n >= 16) return f(Piece<16>());
  if (n >= 8) return f(Piece<8>());
  if (n >= 4) return f(Piece<4>());
  if (n >= 2) return f(Piece<2>());
  f(Piece<1>());
}

/// `count` rows of `size` elements, `next` elements from one row to the next, for N operands.
template <int N>
struct Rows {
  int64_t count, size;
  std::array<int64_t, N> next;
};

/// The loops over N operands of one shape, in the order in which the first one lies in memory.
/// Neighbouring dimensions are joined where one stride serves both, for every operand. (N: 1 to 5;
/// what knows no kernel is compiled once, in strided_loop.cpp.)
template <int N>
struct StridedLoop {
  using Offsets = std::array<int64_t, N>;
  Shape sizes;
  std::array<Shape, N> strides;  // in elements, innermost dimension last

  StridedLoop(const Shape& shape, const std::array<const Array*, N>& operands);

  /// Calls f(offsets, rows) for neighbouring rows along the innermost dimension, whole or in part,
  /// in parallel; offsets of the first element, one per operand. It works with copies of f, whose
  /// pointers stay in registers.
  template <class F>
  void for_each_rows(const F& f, int64_t grain = kGrain) const {
    run(
        &f,
        [](const void* self, const Group* groups, int64_t n) {
          const F own = *static_cast<const F*>(self);
          for (int64_t i = 0; i < n; ++i) own(groups[i].first, groups[i].rows);
        },
        grain);
  }

  /// Calls row(offsets, count) for each of them.
  template <class Row>
  void for_each_row(const Row& row, int64_t grain = kGrain) const {
    for_each_rows(
        [row](Offsets offsets, const Rows<N>& rows) {
          for (int64_t i = 0; i < rows.count; ++i) {
            row(offsets, rows.size);
            for (size_t k = 0; k < N; ++k) offsets[k] += rows.next[k];
          }
        },
        grain);
  }

  /// If rows are shorter than `least`, makes the next dimension the innermost (the longest one, if
  /// few elements lie along that), and returns how many elements each of its elements then stands
  /// for, and their strides; else 1.
  int64_t take_short_rows(int64_t least, Offsets& inner);

  int64_t inner_stride(size_t operand) const { return strides[operand].back(); }
  /// If a row repeats one element, or the next row is the same.
  bool repeats(size_t operand) const {
    const Shape& s = strides[operand];
    return s.size() > 1 && (s.back() == 0 || s[s.size() - 2] == 0);
  }

  /// Steps through the rows in order.
  struct Position {
    Position(const StridedLoop& loop, int64_t row);
    /// Goes on by that many rows of the innermost loop over rows, at most to its end.
    void next(int64_t rows = 1);

   private:
    const StridedLoop& loop_;

   public:
    Shape index;        // of the row; its last entry is 0
    Offsets offsets{};  // of the row's first element
  };

 private:
  struct Group {
    Offsets first;
    Rows<N> rows;
  };
  using RunGroups = void (*)(const void* self, const Group* groups, int64_t n);
  void run(const void* self, RunGroups f, int64_t grain) const;
};

}  // namespace ink
