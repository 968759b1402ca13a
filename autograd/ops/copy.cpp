// Fills and copies: arange, eye, linspace, copy (with conversion), contiguous, clone, to.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "autograd/base/parallel.h"
#include "autograd/base/shuffle.h"
#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/map.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/memory/device_backend.h"
#include "autograd/ops/shared/elementwise.h"

namespace ink {

namespace cpu {

void fill(Array& y, double value) {
  if (!y.is_contiguous()) return copy(y, repeated(value, y.dtype(), y.shape()));
  for_any(y.dtype(), [&]<class T>(T) {
    const T v = static_cast<T>(value);
    T* out = y.mutable_data<T>();
    parallel_for(y.numel(), kGrain, [=](int64_t begin, int64_t end) {
      const T number = v;  // or std::fill reads a bf16 of the closure before each element
      std::fill(out + begin, out + end, number);
    });
  });
}

void ramp(Array& y, double start, double step, double end, int64_t rising) {
  const int64_t n = y.numel(), size = size_of(y.dtype());
  if (y.dtype() == i64 && rising == n) {  // in integers, which are exact
    const auto first = static_cast<int64_t>(start), next = static_cast<int64_t>(step);
    return parallel_for(n, kGrain, [=, out = y.mutable_data<int64_t>()](int64_t i, int64_t stop) {
      for (; i < stop; ++i) out[i] = first + i * next;
    });
  }
  const detail::Convert convert = detail::conversion(y.dtype(), f64);
  parallel_for(n, kGrain, [=, out = writable_address_of(y)](int64_t begin, int64_t stop) {
    constexpr int64_t kChunk = 256;
    double numbers[kChunk];
    for (; begin < stop; begin += kChunk) {
      const int64_t count = std::min(kChunk, stop - begin);
      const int64_t up = std::clamp<int64_t>(rising - begin, 0, count);
      for (int64_t i = 0; i < up; ++i) numbers[i] = start + static_cast<double>(begin + i) * step;
      for (int64_t i = up; i < count; ++i)
        numbers[i] = end - static_cast<double>(n - 1 - begin - i) * step;
      convert(out + begin * size, numbers, count);
    }
  });
}

namespace {

// y[r][c] = x[c][r] for a block of 8 x 8, through registers: each of three rounds interleaves row i
// with row i + 4.
template <class Bits>
void transpose_block(Bits* y, int64_t y_row, const Bits* x, int64_t x_row) {
  typedef Bits Row __attribute__((vector_size(8 * sizeof(Bits))));
  Row a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], x + i * x_row, sizeof(Row));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = INK_SHUFFLE(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      b[2 * i + 1] = INK_SHUFFLE(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; ++i) a[i] = b[i];
  }
  for (int i = 0; i < 8; ++i) std::memcpy(y + i * y_row, &a[i], sizeof(Row));
}

// y[r][c] = x[c][r] for a whole matrix, in blocks of 16 x 16: whole cache lines of both where
// elements have four bytes. No prefetcher predicts these accesses, so the code prefetches the next
// block.
template <class Bits>
void transpose(Bits* y, int64_t y_row, const Bits* x, int64_t x_row, int64_t rows,
               int64_t columns) {
  constexpr int64_t kSide = 16;
  for (int64_t c = 0; c < columns; c += kSide) {
    for (int64_t r = 0; r < rows; r += kSide) {
      Bits* to = y + r * y_row + c;
      const Bits* from = x + c * x_row + r;
      const int64_t height = std::min(kSide, rows - r), width = std::min(kSide, columns - c);
      if (height < kSide || width < kSide) {
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) to[i * y_row + j] = from[j * x_row + i];
        }
        continue;
      }
      for (int64_t i = 0; i < kSide && c + 2 * kSide <= columns; ++i) {
        __builtin_prefetch(to + i * y_row + kSide, 1);
        __builtin_prefetch(from + (i + kSide) * x_row);
      }
      for (int64_t i : {0, 8}) {
        for (int64_t j : {0, 8})
          transpose_block(to + i * y_row + j, y_row, from + j * x_row + i, x_row);
      }
    }
  }
}

constexpr int64_t kTransposeRows = 64;  // of y at a time: their lines stay in the cache until full

// The dimension along which x is contiguous, if y is contiguous along the last one: then this
// copies a transposed matrix. -1 if there is none.
int64_t transposed_dim(const StridedLoop<2>& loop) {
  const int64_t last = loop.sizes.size() - 1;
  if (loop.inner_stride(0) != 1 || loop.inner_stride(1) <= 1 || loop.sizes[last] < 8) return -1;
  for (int64_t d = 0; d < last; ++d) {
    if (loop.strides[1][d] == 1 && loop.sizes[d] >= 8) return d;
  }
  return -1;
}

template <class Bits>
void copy_transposed(Bits* y, const Bits* x, StridedLoop<2> loop, int64_t dim) {
  const int64_t rows = loop.sizes[dim], columns = loop.sizes.back();
  const int64_t y_row = loop.strides[0][dim], x_row = loop.inner_stride(1);
  loop.sizes[dim] = (rows + kTransposeRows - 1) / kTransposeRows;  // now a loop over such chunks
  for (Shape& strides : loop.strides) strides[dim] *= kTransposeRows;
  const int64_t chunks = loop.sizes.numel() / columns;
  parallel_for(chunks, kGrain / (kTransposeRows * columns), [&](int64_t begin, int64_t end) {
    StridedLoop<2>::Position at(loop, begin);
    for (; begin < end; ++begin, at.next()) {
      const int64_t left = rows - at.index[dim] * kTransposeRows;
      transpose(y + at.offsets[0], y_row, x + at.offsets[1], x_row, std::min(left, kTransposeRows),
                columns);
    }
  });
}

// Copies rows of `width` elements, which follow each other: to[k] = from[k], or *from for all.
template <class T>
void copy_short_rows(T* y, const T* x, const StridedLoop<2>& rows, int64_t width, bool repeated) {
  const auto copy = [=, sy = rows.inner_stride(0), sx = rows.inner_stride(1)](auto offset,
                                                                              int64_t n) {
    with_piece(width, [=](auto piece) {  // its variables stay in registers
      T* to = y + offset[0];
      const T* from = x + offset[1];
      for (int64_t i = 0; i < n; ++i, to += sy, from += sx) {
        if (repeated) {
          const T element = *from;
          piece.cover(width, [&](int64_t k) { piece.fill(to + k, element); });
        } else {
          piece.cover(width, [&](int64_t k) { piece.copy(to + k, from + k); });
        }
      }
    });
  };
  rows.for_each_row(copy, kGrain / width);
}

// Copies rows of `width` elements: a column of some rows, then the next one.
template <class T>
void copy_columns(T* y, const T* x, const StridedLoop<2>& rows, int64_t width,
                  const std::array<int64_t, 2>& next_column) {
  const auto copy = [=, sy = rows.inner_stride(0), sx = rows.inner_stride(1)](auto offset,
                                                                              int64_t left) {
    T* to = y + offset[0];
    const T* from = x + offset[1];
    constexpr int64_t kRows = 256;
    for (; left > 0; left -= kRows, to += kRows * sy, from += kRows * sx) {
      const int64_t n = std::min(left, kRows), step_y = sy, step_x = sx;
      for (int64_t k = 0; k < width; ++k) {
        T* column = to + k * next_column[0];
        const T* source = from + k * next_column[1];
#pragma GCC unroll 4
        for (int64_t i = 0; i < n; ++i) column[i * step_y] = source[i * step_x];
      }
    }
  };
  rows.for_each_row(copy, kGrain / width);
}

constexpr int64_t kShortRow = 33;     // shorter rows that are contiguous are copied in pieces,
constexpr int64_t kShortColumns = 9;  // and others that are shorter than this, column by column

// Copies elements of one dtype. Long rows that are contiguous, of one value, reversed (flip), or of
// every second element, have faster loops than others.
template <class T>
void copy_rows(T* y, const T* x, StridedLoop<2> loop) {
  const bool repeated = loop.inner_stride(1) == 0,
             in_pieces = loop.inner_stride(0) == 1 && (repeated || loop.inner_stride(1) == 1);
  std::array<int64_t, 2> next_column{};
  const int64_t width = loop.take_short_rows(in_pieces ? kShortRow : kShortColumns, next_column);
  if (width > 1 && in_pieces) return copy_short_rows(y, x, loop, width, repeated);
  if (width > 1) return copy_columns(y, x, loop, width, next_column);
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  loop.for_each_row([=](auto offset, int64_t n) {
    T* to = y + offset[0];
    const T* from = x + offset[1];
    if (sy == 1 && sx == 1) {
      std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(n) * sizeof(T));
    } else if (sy == 1 && sx == 0) {
      std::fill_n(to, n, *from);
    } else if (sy == 1 && sx == -1) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
    } else if (sy == 1 && sx == 2) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
    } else {
#pragma GCC unroll 4
      for (int64_t i = 0; i < n; ++i) to[i * sy] = from[i * sx];
    }
  });
}

}  // namespace

void copy(Array& y, const Array& x) {
  if (x.dtype() != y.dtype()) {
    struct To {
      detail::Convert convert;
      int64_t size;
    };
    const auto row = [](const void* f, int64_t n, void* y_row, const void* const* x_row,
                        const int64_t* step) {
      const To to = *static_cast<const To*>(f);
      const int64_t part = *step == 0 ? detail::kMapBlock : n;  // a number stands there so often
      for (int64_t i = 0; i < n; i += part)
        to.convert(static_cast<std::byte*>(y_row) + i * to.size, *x_row, std::min(part, n - i));
    };
    const To to{detail::conversion(y.dtype(), x.dtype()), size_of(y.dtype())};
    return detail::map_rows(row, &to, y, y.dtype(), {{x, x.dtype()}});
  }
  const StridedLoop<2> loop(y.shape(), {&y, &x});
  for_bits(size_of(x.dtype()), [&]<class Bits>(Bits) {
    Bits* to = reinterpret_cast<Bits*>(writable_address_of(y));
    const Bits* from = reinterpret_cast<const Bits*>(address_of(x));
    const int64_t dim = transposed_dim(loop);
    return dim < 0 ? copy_rows(to, from, loop) : copy_transposed(to, from, loop, dim);
  });
}

}  // namespace cpu

// How many numbers lie from `from` to `to`: of integers exactly, also beyond 2^53.
static double count(const Scalar& from, const Scalar& to, const Scalar& by, bool integers) {
  const bool rises = by.value > 0;
  if (!integers) {
    const double steps = (to.value - from.value) / by.value;
    INK_CHECK(steps >= 0, "arange: a step of ", by, " never gets from ", from, " to ", to);
    return std::ceil(steps);
  }
  INK_CHECK(rises ? from.integer <= to.integer : from.integer >= to.integer, "arange: a step of ",
            by, " never gets from ", from, " to ", to);
  const auto a = static_cast<uint64_t>(from.integer), b = static_cast<uint64_t>(to.integer),
             c = static_cast<uint64_t>(by.integer), step = rises ? c : 0 - c;
  const uint64_t span = rises ? b - a : a - b;
  return static_cast<double>(span / step + (span % step != 0 ? 1 : 0));
}

// PyTorch converts the bounds to the dtype first, but counts the elements before that.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, Options options) {
  INK_CHECK(step.value != 0 && std::isfinite(start.value) && std::isfinite(end.value) &&
                std::isfinite(step.value),
            "arange: expected finite bounds and a step other than 0, got ", start, ", ", end, ", ",
            step);
  const bool integers = options.dtype == i64 && !is_floating(start.dtype) &&
                        !is_floating(end.dtype) && !is_floating(step.dtype);
  const double n = count(start, end, step, integers);
  INK_CHECK(n < 0x1p62, "arange: ", n, " elements are too many");
  Tensor x = empty({static_cast<int64_t>(n)}, options);
  if (integers && !(start.exact() && step.exact())) {  // the kernel takes doubles
    kernel::ramp(x, 0, 1, 0, x.numel());
    return x.mul_(step).add_(start);
  }
  kernel::ramp(x, start.value, step.value, 0, x.numel());
  return x;
}
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step) {
  const bool floats = is_floating(start.dtype) || is_floating(end.dtype) || is_floating(step.dtype);
  return arange(start, end, step, floats ? context().default_dtype : i64);
}
Tensor arange(const Scalar& start, const Scalar& end, Options options) {
  return arange(start, end, 1, options);
}
Tensor arange(const Scalar& end, Options options) { return arange(0, end, 1, options); }
Tensor arange(const Scalar& end) { return arange(0, end); }

Tensor eye(int64_t n, int64_t m, Options options) {
  INK_CHECK(n >= 0 && m >= 0, "eye: expected sizes of 0 or more, got ", n, " and ", m);
  Tensor x = zeros({n, m}, options);
  Array diagonal = x.array().seen_as({{std::min(n, m)}, {m + 1}, 0});
  kernel::fill(diagonal, 1);
  return x;
}
Tensor eye(int64_t n, Options options) { return eye(n, n, options); }

Tensor linspace(double start, double end, int64_t steps, Options options) {
  INK_CHECK(steps >= 0, "linspace: expected a number of steps of 0 or more, got ", steps);
  if (options.dtype == i64) {  // the bounds are converted to i64 first, as in PyTorch
    for (const double bound : {start, end}) check_in_range("linspace", bound, i64);
    start = std::trunc(start);
    end = std::trunc(end);
  }
  Tensor x = empty({steps}, options);
  // From both ends, so that both are exact.
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  kernel::ramp(x, start, step, end, steps == 1 ? 1 : steps / 2);
  return x;
}

Array copied(const Array& x, DType dtype) {
  Array y = Array::empty(x.shape(), dtype, x.device());
  kernel::copy(y, x);
  return y;
}
Array contiguous(const Array& x) { return x.is_contiguous() ? x : copied(x, x.dtype()); }

// y = x.   dx = dy
static Tensor copy_to(Tensor y, const Tensor& x) {
  kernel::copy(y, x);
  return record("clone", {x}, y, [](const Tensor& dy) -> Grads { return {dy}; });
}

// As in PyTorch, the clone of a transposed tensor is transposed in memory, too.
Tensor clone(const Tensor& x) {
  check_defined("clone", x);
  return copy_to(empty_result(x.shape(), x.options(), {&x}), x);
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", x);
  return x.is_contiguous() ? x : copy_to(empty_like(x), x);
}

// y = x rounded to another dtype.   dx = dy in x's dtype
Tensor to(const Tensor& x, DType dtype) {
  check_defined("to", x);
  if (x.dtype() == dtype) return x;
  Tensor y = empty_result(x.shape(), {dtype, x.device()}, {&x});
  kernel::copy(y, x);
  if (!is_floating(dtype)) return y;
  return record("to", {x}, y,
                [from = x.dtype()](const Tensor& dy) -> Grads { return {to(dy, from)}; });
}

// y = x on another device.   dx = dy on x's
Tensor to(const Tensor& x, Device device) {
  check_defined("to", x);
  if (x.device() == device) return x;
  const Tensor from = x.detach().contiguous();
  Tensor y = empty(x.shape(), {x.dtype(), device});
  for_any(x.dtype(), [&]<class T>(T) {
    transfer(y.mutable_data<T>(), device, from.data<T>(), x.device(),
             x.numel() * size_of(x.dtype()));
  });
  return record("to", {x}, y,
                [back = x.device()](const Tensor& dy) -> Grads { return {to(dy, back)}; });
}

}  // namespace ink
