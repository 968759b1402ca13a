// Products on vectors of any width, in the compiler's own vector types: of f32 and bf16 on AVX2
// and NEON, and of f64 on them and on AVX-512.
//
// Include it where the target is the processor that it is for. Everything is local to the file,
// because code that one file compiles for its processor must not end up in another file's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "autograd/gemm/transpose.h"
#include "autograd/gemm/units.h"

namespace ink {
namespace {

// The lanes of x with odd numbers, twice. J: 0 to the number of lanes.
template <class Vector, int... J>
[[gnu::always_inline]] inline Vector odd_lanes(const Vector& x, std::integer_sequence<int, J...>) {
  return INK_SHUFFLE(x, x, (2 * J + 1)...);
}

// Blocks are compiled for heights of 1, 2, 3, 4, 6, 8, ... Another number of rows takes two blocks;
// next_height is the first one's.
constexpr size_t block_index(int64_t height) {
  return static_cast<size_t>(height <= 4 ? height - 1 : height / 2 + 1);
}
constexpr int block_height(size_t index) {
  return static_cast<int>(index < 4 ? index + 1 : 2 * index - 2);
}
constexpr int64_t next_height(int64_t rows) { return rows > 4 && rows % 2 == 1 ? rows - 3 : rows; }

// A block of the result, up to kRows rows by kVectors vectors, stays in registers during the loop
// over the inner dimension. Each step takes kVectors vectors of the right operand's panel and one
// element of each row of the left operand. The left operand's rows for a block stay in the L1 cache
// while the right panels stream from the L2 cache.
//
// T: float or double, in which sums are computed; bf16 becomes T while it is packed.
template <class T, int kBytes, int kRows, int kVectors>
class Panels {
 public:
  static int64_t scratch_bytes(int64_t, int64_t n, int64_t k) {
    const int64_t steps = part_steps(std::min(k, kLongestBf16Inner), true);
    const int64_t panels = (std::min(n, kColumns) + kWidth - 1) / kWidth;
    return sizeof(T) * (kGroupRows * left_ld(steps) + panels * kWidth * steps);
  }

  static void product(const GemmProduct& p, void* scratch) {
    const int64_t part = part_steps(p.k, p.c.dtype == bf16);
    T *left_memory = static_cast<T*>(scratch), *right = left_memory + kGroupRows * left_ld(part);
    for (int64_t j0 = 0; j0 < p.n; j0 += kColumns) {
      const int64_t cols = std::min(kColumns, p.n - j0);
      for (int64_t k0 = 0; k0 < p.k; k0 += part) {
        const int64_t steps = std::min(part, p.k - k0);
        pack_right(right, p.b.from(k0, j0), steps, cols);
        const Start start = k0 > 0 || p.accumulate ? Start{static_cast<const T*>(p.c.data), p.c.ld}
                                                   : Start{static_cast<const T*>(p.bias), 0};
        for (int64_t i0 = 0; i0 < p.m; i0 += kGroupRows) {
          const int64_t group = std::min(kGroupRows, p.m - i0);
          const Left left = pack_left(left_memory, p.a.from(i0, k0), group, steps);
          for (int64_t i = 0, height; i < group; i += height) {
            height = next_height(std::min<int64_t>(kRows, group - i));
            multiply_rows(height, steps, left.from(i), right, start.at(i0 + i, j0),
                          p.c.from(i0 + i, j0), cols);
          }
        }
      }
    }
  }

 private:
  typedef T Vector __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(kBytes)));    // of a vector of floats
  typedef uint16_t Halves __attribute__((vector_size(kBytes)));  // of its lanes, the lower first
  static constexpr int64_t kLanes = kBytes / sizeof(T), kWidth = kLanes * kVectors;
  static constexpr int64_t kLongestPart = 1024 / sizeof(T);   // steps of a packed part
  static constexpr int64_t kColumns = 256 / kWidth * kWidth;  // of packed right panels
  static constexpr int64_t kGroupRows = 8 * kRows;            // packed at once

  // Cuts the inner dimension into equal parts.
  static int64_t part_steps(int64_t k, bool whole) {
    const int64_t parts = whole ? 1 : (k + kLongestPart - 1) / kLongestPart;
    const int64_t steps = (k + parts - 1) / parts;
    return (steps + kLanes - 1) / kLanes * kLanes;
  }
  // Rows of the packed left operand begin in different sets of the cache.
  static int64_t left_ld(int64_t steps) { return steps + kLanes; }

  // Values from which a block of the result starts, rows ld apart; zeros if null.
  struct Start {
    const T* data;
    int64_t ld;
    Start at(int64_t row, int64_t col) const {
      return data == nullptr ? *this : Start{data + row * ld + col, ld};
    }
  };
  // The left operand's rows: element (row, step) is at row * row_stride + step * step_stride.
  struct Left {
    const T* data;
    int64_t row_stride, step_stride;
    Left from(int64_t row) const { return {data + row * row_stride, row_stride, step_stride}; }
  };

  static Vector load(const T* x) { return *reinterpret_cast<const Vector*>(x); }
  static void store(T* x, const Vector& v) { *reinterpret_cast<Vector*>(x) = v; }

  template <class From>
  static void convert(T* to, const From* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }

  // Calls f(elements) for the operand's elements, of their own type.
  template <class F>
  static void typed(const GemmOperand& x, const F& f) {
    if constexpr (std::is_same_v<T, float>) {
      if (x.dtype == bf16) return f(static_cast<const bfloat16*>(x.data));
    }
    f(static_cast<const T*>(x.data));
  }

  // The right operand's panels, kWidth columns each; columns past the last one are zeros.
  static void pack_right(T* to, const GemmOperand& x, int64_t steps, int64_t cols) {
    typed(x, [&](const auto* from) {
      for (int64_t j = 0; j < cols; j += kWidth, to += steps * kWidth) {
        const int64_t live = std::min(kWidth, cols - j);
        if (live < kWidth) std::fill_n(to, steps * kWidth, T{0});
        if (x.layout.transposed) {
          turn(to, kWidth, from + j * x.layout.ld, x.layout.ld, live, steps);
        } else if (live == kWidth) {
          for (int64_t r = 0; r < steps; ++r)
            convert(to + r * kWidth, from + r * x.layout.ld + j, kWidth);
        } else {
          for (int64_t r = 0; r < steps; ++r)
            convert(to + r * kWidth, from + r * x.layout.ld + j, live);
        }
      }
    });
  }

  // An L1 cache may keep only 8 lines whose addresses differ by multiples of 4 KiB. Would a block's
  // rows, where they are, take more than half of these?
  static bool collide(int64_t ld) {
    const int64_t bytes = ld * static_cast<int64_t>(sizeof(T)), apart = std::gcd(bytes, 4096);
    return kRows * apart > 4 * 4096;
  }

  // A group of the left operand's rows. Rows are read where they are if they need no conversion and
  // do not displace each other in the cache.
  static Left pack_left(T* memory, const GemmOperand& x, int64_t rows, int64_t steps) {
    if (!x.layout.transposed && x.dtype == dtype_of<T>() && !collide(x.layout.ld))
      return {static_cast<const T*>(x.data), x.layout.ld, 1};
    const int64_t ld = x.layout.transposed ? kGroupRows : left_ld(steps);
    const int64_t lines = x.layout.transposed ? steps : rows,
                  length = x.layout.transposed ? rows : steps;
    typed(x, [&](const auto* from) {
      for (int64_t i = 0; i < lines; ++i) convert(memory + i * ld, from + i * x.layout.ld, length);
    });
    return x.layout.transposed ? Left{memory, 1, ld} : Left{memory, ld, 1};
  }

  // to[step][col] = from[col][step], by squares of vectors.
  template <class From>
  static void turn(T* to, int64_t to_ld, const From* from, int64_t from_ld, int64_t cols,
                   int64_t steps) {
    int64_t whole_cols = cols / kLanes * kLanes, whole_steps = steps / kLanes * kLanes;
    for (int64_t j = 0; j < whole_cols; j += kLanes) {
      for (int64_t r = 0; r < whole_steps; r += kLanes) {
        T lines[kLanes * kLanes];
        typedef T Row __attribute__((vector_size(kBytes)));  // aligned
        Row square[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          if constexpr (std::is_same_v<From, T>) {
            square[i] = load(from + (j + i) * from_ld + r);
          } else {
            convert(lines + i * kLanes, from + (j + i) * from_ld + r, kLanes);
            square[i] = load(lines + i * kLanes);
          }
        }
        transpose_square(square);
        for (int64_t i = 0; i < kLanes; ++i) store(to + (r + i) * to_ld + j, square[i]);
      }
    }
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t r = j < whole_cols ? whole_steps : 0; r < steps; ++r)
        to[r * to_ld + j] = static_cast<T>(from[j * from_ld + r]);
    }
  }

  // R rows of the result, `cols` columns of one panel: V vectors, of which the last may be partly
  // used.
  template <int R, int V>
  static void multiply_block(int64_t steps, const Left& left, const T* right, Start start,
                             const GemmResult& c, int64_t cols) {
    Vector sums[R][V] = {};
    const T* rows[(R + 2) / 3];  // of every third row: the next ones are a stride or two away
    for (int i = 0; i < R; i += 3) rows[i / 3] = left.data + i * left.row_stride;
    for (int64_t step = 0; step < steps; ++step) {
      Vector b[V];
      for (int v = 0; v < V; ++v) b[v] = load(right + v * kLanes);
#pragma GCC unroll 14
      for (int i = 0; i < R; ++i) {
        const T a = rows[i / 3][i % 3 * left.row_stride];
        for (int v = 0; v < V; ++v) sums[i][v] += a * b[v];
      }
      for (const T*& row : rows) row += left.step_stride;
      right += kWidth;
    }
    if (cols == V * kLanes) {
#pragma GCC unroll 14
      for (int i = 0; i < R; ++i) {
        const Start from = start.at(i, 0);
        const GemmResult to = c.from(i, 0);
        for (int v = 0; v < V; ++v) store_vector(to, from, v * kLanes, sums[i][v]);
      }
    } else {
      Vector last[R];
#pragma GCC unroll 14
      for (int i = 0; i < R; ++i) {
        for (int v = 0; v < V - 1; ++v)
          store_vector(c.from(i, 0), start.at(i, 0), v * kLanes, sums[i][v]);
        last[i] = sums[i][V - 1];
      }
      constexpr int64_t at = (V - 1) * kLanes;
      store_column(c.from(0, at), start.at(0, at), last, R, cols - at);
    }
  }

  // c = start + x in a row, from column j on.
  static void store_vector(GemmResult c, Start start, int64_t j, Vector x) {
    if (start.data != nullptr) x += load(start.data + j);
    if (c.dtype == dtype_of<T>()) {
      store(static_cast<T*>(c.data) + j, x);
    } else {
      store_rounded(static_cast<bfloat16*>(c.data) + j, x);
    }
  }

  // The same for one vector in each of `rows` rows, from column 0 on. Its first n lanes are stored.
  [[gnu::noinline]] static void store_column(GemmResult c, Start start, const Vector* x,
                                             int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; ++i) {
      const Start from = start.at(i, 0);
      T line[kLanes] = {};
      if (from.data != nullptr) copy_some(line, from.data, n);
      store_vector({line, c.dtype, 0}, {from.data != nullptr ? line : nullptr, 0}, 0, x[i]);
      if (c.dtype == dtype_of<T>()) {
        copy_some(static_cast<T*>(c.data) + i * c.ld, line, n);
      } else {
        copy_some(static_cast<bfloat16*>(c.data) + i * c.ld,
                  reinterpret_cast<const bfloat16*>(line), n);
      }
    }
  }

  // Copies n < 2 * size elements: `size` at once if n is as large, then half as many, and so on.
  template <int64_t size = kLanes / 2, class E>
  static void copy_some(E* to, const E* from, int64_t n) {
    if constexpr (size > 0) {
      if (n >= size) std::memcpy(static_cast<void*>(to), from, size * sizeof(E));
      const int64_t copied = n & size;
      copy_some<size / 2>(to + copied, from + copied, n - copied);
    }
  }

  // Rounds floats as bfloat16(float) does: its bits are then the upper half of each lane.
  static void store_rounded(bfloat16* to, const Vector& x) {
    if constexpr (std::is_same_v<T, float>) {
      const Bits bits = reinterpret_cast<Bits>(x);
      const Bits number = bits + 0x7fff + ((bits >> 16) & 1), quiet = bits | 0x400000;
      const Bits rounded = x != x ? quiet : number;
      const Halves upper = odd_lanes(reinterpret_cast<Halves>(rounded),
                                     std::make_integer_sequence<int, 2 * kLanes>());
      std::memcpy(static_cast<void*>(to), &upper, kBytes / 2);
    }
  }

  using MultiplyBlock = void (*)(int64_t, const Left&, const T*, Start, const GemmResult&, int64_t);

  static void multiply_rows(int64_t rows, int64_t steps, Left left, const T* right, Start start,
                            GemmResult c, int64_t cols) {
    constexpr auto kBlocks = []<size_t... I>(std::index_sequence<I...>) {
      return std::array{static_cast<MultiplyBlock>(
          multiply_block<block_height(I / kVectors), I % kVectors + 1>)...};
    }
    (std::make_index_sequence<(block_index(kRows) + 1) * kVectors>());
    for (int64_t j = 0; j < cols; j += kWidth) {
      const int64_t some = std::min(kWidth, cols - j), vectors = (some + kLanes - 1) / kLanes;
      kBlocks[block_index(rows) * kVectors + static_cast<size_t>(vectors - 1)](
          steps, left, right + j * steps, start.at(0, j), c.from(0, j), some);
    }
  }
};

// GemmUnit::keep_busy on vectors of T: chains of x = x / 2 + 1, as many as hide the latency.
template <class T, int kBytes>
double multiply_adds(int64_t rounds) {
  typedef T Vector __attribute__((vector_size(kBytes)));
  constexpr int kChains = 12;
  Vector sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + static_cast<T>(i);  // none is another's
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * T(0.5) + T(1);
  }
  volatile T kept = 0;  // so that the compiler drops none
  for (int i = 0; i < kChains; ++i) kept = kept + sums[i][0];
  return 2.0 * kChains * (kBytes / sizeof(T)) * static_cast<double>(rounds);
}

}  // namespace
}  // namespace ink
