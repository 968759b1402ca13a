// The parts of attention's general kernels (forward.cu, backward.cu): products of tiles, in f32 or
// f64 arithmetic, for any head size, strides and mask.
//
// A block owns kOwn rows (queries, or keys when it collects their gradients) and takes kOther of
// the other rows at a time. The scores of the two tiles are in registers, a square of 4 x 4 in each
// thread. 8 threads are along the block's own rows, 16 along the others.
#pragma once

#include <cmath>
#include <type_traits>

#include "cuda/attention/attention.cuh"
#include "cuda/mma.cuh"
#include "cuda/pack.cuh"

namespace ink::cuda {

inline constexpr int kOwn = 32, kOther = 64, kSquare = 4, kTileThreads = 128;
inline constexpr int kAlongOther = kOther / kSquare, kAlongOwn = kOwn / kSquare;
static_assert(kAlongOther * kAlongOwn == kTileThreads);

__device__ inline int own_group() { return static_cast<int>(threadIdx.x) / kAlongOther; }
__device__ inline int other_group() { return static_cast<int>(threadIdx.x) % kAlongOther; }

/// 16 bytes of C.
template <class C>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(C));
template <class C>
using Wide = Pack<C, kPack<C>>;

/// A tile's rows: `count` rows of a matrix from `first` on, then zeros.
template <class T>
struct Rows {
  Matrix<const T> matrix;
  int first, count;
};

/// The number of rows of a tile that starts at `first`: at most `most`, and all before `end`.
__device__ inline int rows_of_tile(int first, int end, int most) {
  return end - first < most ? end - first : most;
}

/// A thread's square of scores: x[own row][other row].
template <class C>
struct Square {
  C x[kSquare][kSquare] = {};
};

/// Which keys a head's queries see, with the scale, the mask and dropout.
template <class T>
struct Sight {
  using C = compute_t<T>;
  const AttentionProblem<T>& problem;
  int head;
  int64_t mask;      // where the head's starts
  uint64_t key = 0;  // of dropout
  C factor = 1;      // of weights that stay

  __device__ Sight(const AttentionProblem<T>& p, int number)
      : problem(p), head(number), mask(p.mask.start(number)) {
    if (!p.dropout.on) return;
    key = p.dropout.key();
    factor = static_cast<C>(p.dropout.kept);
  }
  __device__ C score(C dot, int i, int j) const { return problem.score(dot, mask, i, j); }
  __device__ bool sees(int i, int j) const { return problem.sees(mask, i, j); }
  /// Which of the weights of queries i ... i + 3 and keys j ... j + 3 stay: four bits for each
  /// query.
  __device__ unsigned kept(int i, int j) const {
    static_assert(kSquare == 4);
    const WeightDropout& drop = problem.dropout;
    if (!drop.on) return 0xffff;
    unsigned bits = 0;
#pragma unroll 1
    for (int r = 0; r < 4; ++r) bits |= drop.four_from(key, drop.element(head, i + r, j)) << 4 * r;
    return bits;
  }
};

/// Shared memory for products of tiles whose results are kWidth columns wide.
template <class T, int kWidth>
struct Tiles {
  using C = compute_t<T>;
  // A slice of columns for dot products: rows of 128 bytes, and a pack, so that packs of eight
  // rows that follow one another lie in different banks.
  static constexpr int kSlice = 8 * kPack<C>, kSliceRow = kSlice + kPack<C>;
  static constexpr int kWeightRow = kOther + kPack<C>;
  static constexpr int kValues = 16;                     // rows at a time
  static constexpr int kColumns = kWidth / kAlongOther;  // of a thread
  static_assert(kColumns % kPack<C> == 0);
  struct Slices {
    C own[kOwn * kSliceRow], other[kOther * kSliceRow];
  };
  union alignas(16) {
    Slices slices;
    C values[kValues * kWidth];
  };
  alignas(16) C weights[kOwn * kWeightRow];

  /// A thread's part of results: rows of its square, columns as column() says.
  struct Sums {
    C x[kSquare][kColumns] = {};

    /// Are they finite?
    __device__ bool finite() const {
      C zero = 0;
#pragma unroll
      for (int e = 0; e < kSquare * kColumns; ++e) zero += 0 * x[e / kColumns][e % kColumns];
      return zero == 0;
    }
  };
  __device__ static int column(int n) {
    return (n / kPack<C> * kAlongOther + other_group()) * kPack<C> + n % kPack<C>;
  }

  /// square += own other^T over `cols` columns.
  __device__ void dots(Square<C>& square, const Rows<T>& own, const Rows<T>& other, int cols) {
    for (int c0 = 0; c0 < cols; c0 += kSlice) {
      __syncthreads();  // the memory may still be read
      load<kOwn, kSlice>(own, 0, c0, cols, [&](int i, int c) {
        return slices.own + place<kAlongOwn>(i) * kSliceRow + c;
      });
      load<kOther, kSlice>(other, 0, c0, cols, [&](int i, int c) {
        return slices.other + place<kAlongOther>(i) * kSliceRow + c;
      });
      finish_loads();
      add_slice(square);
    }
  }

  /// Makes the square part of `weights`.
  __device__ void put(const Square<C>& square) {
    __syncthreads();  // the memory may still be read
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      C* row = weights + (own_group() * kSquare + r) * kWeightRow + other_group() * kSquare;
#pragma unroll
      for (int c = 0; c < kSquare; ++c) row[c] = square.x[r][c];
    }
  }

  /// sums += weights rows, kWidth columns of the rows from first_col on. Hidden weights are 0, but
  /// 0 times NaN is NaN. So blocks whose sums are not finite compute them again with care: what is
  /// not finite then reaches only where sees(own row, other row).
  template <bool kCareful, class Sees>
  __device__ void add_rows(Sums& sums, const Rows<T>& rows, int first_col, int cols,
                           const Sees& sees) {
    for (int j0 = 0; j0 < rows.count; j0 += kValues) {
      __syncthreads();
      load<kValues, kWidth>(rows, j0, first_col, cols,
                            [&](int j, int c) { return values + j * kWidth + c; });
      finish_loads();
      const C* weight = weights + own_group() * kSquare * kWeightRow + j0;
      const int count = rows_of_tile(j0, rows.count, kValues);
      if constexpr (kCareful) {
        add_seen(sums, weight, count, j0, sees);
      } else {
        add_values(sums, weight, count);
      }
    }
  }

  /// to(first + row, first_col + column) = factor(row of the square) sums.
  template <class F>
  __device__ static void store(const Matrix<T>& to, int first, int count, int first_col, int cols,
                               const Sums& sums, F&& factor) {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const int row = own_group() * kSquare + r;
      const C f = factor(r);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int c = first_col + column(n);
        if (row < count && c < cols) to.at(first + row, c) = T(sums.x[r][n] * f);
      }
    }
  }

 private:
  // Rows that a thread loads at once. Converted rows wait in registers; copies need none.
  static constexpr int kAtOnce = std::is_same_v<T, C> ? 2 : 8;

  // *to(i, c) = x for rows i of a tile from `first_row` on and kCols columns from first_col on.
  template <int kRows, int kCols, class To>
  __device__ static void load(const Rows<T>& rows, int first_row, int first_col, int cols,
                              To&& to) {
    if (std::is_same_v<T, C> && rows.matrix.in_packs) {
      load_each<kRows, kCols, kPack<C>>(rows, first_row, first_col, cols, to);
    } else {
      load_each<kRows, kCols, 1>(rows, first_row, first_col, cols, to);
    }
  }
  // kEach columns at a time. A thread keeps its columns, so that neighbours read neighbours.
  template <int kRows, int kCols, int kEach, class To>
  __device__ static void load_each(const Rows<T>& rows, int first_row, int first_col, int cols,
                                   To& to) {
    constexpr int kAlong = kCols / kEach, kStep = kTileThreads / kAlong;
    static_assert(kTileThreads % kAlong == 0);
    const int i0 = static_cast<int>(threadIdx.x) / kAlong,
              c = static_cast<int>(threadIdx.x) % kAlong * kEach;
    const T* from = &rows.matrix.at(rows.first + first_row + i0, first_col + c);
    const int count = first_col + c < cols ? rows.count - first_row : 0;
#pragma unroll kAtOnce
    for (int i = i0; i < kRows; i += kStep, from += kStep * rows.matrix.row) {
      const bool there = i < count;
      if constexpr (std::is_same_v<T, C>) {
        start_copy<kEach * sizeof(C)>(to(i, c), from, there);
      } else {
        *to(i, c) = there ? C(*from) : C(0);
      }
    }
  }
  __device__ static void finish_loads() {
    end_copies();
    wait_for_copies<0>();
    __syncthreads();
  }

  // Row i is placed so that threads of neighbouring groups of four rows read neighbouring
  // addresses.
  template <int kGroups>
  __device__ static int place(int i) {
    return i % kSquare * kGroups + i / kSquare;
  }
  __device__ void add_slice(Square<C>& square) const {
#pragma unroll 1
    for (int p = 0; p < kSlice; p += kPack<C>) {
      Wide<C> b[kSquare];
#pragma unroll
      for (int c = 0; c < kSquare; ++c)
        b[c] = pack(slices.other + (c * kAlongOther + other_group()) * kSliceRow + p);
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
        const Wide<C> a = pack(slices.own + (r * kAlongOwn + own_group()) * kSliceRow + p);
#pragma unroll
        for (int k = 0; k < kPack<C>; ++k) {
#pragma unroll
          for (int c = 0; c < kSquare; ++c) square.x[r][c] += a.at[k] * b[c].at[k];
        }
      }
    }
  }
  // With one rounding, so that both functions below give the same bits.
  __device__ static void add_product(C& sum, C a, C b) { sum = std::fma(a, b, sum); }
  // Rows beyond the last are zeros up to a whole pack.
  __device__ void add_values(Sums& sums, const C* weight, int count) const {
#pragma unroll 1
    for (int j = 0; j < count; j += kPack<C>) {
      Wide<C> w[kSquare];
#pragma unroll
      for (int r = 0; r < kSquare; ++r) w[r] = pack(weight + r * kWeightRow + j);
#pragma unroll
      for (int k = 0; k < kPack<C>; ++k) {
#pragma unroll
        for (int n = 0; n < kColumns; n += kPack<C>) {
          const Wide<C> v = pack(values + (j + k) * kWidth + column(n));
#pragma unroll
          for (int e = 0; e < kSquare * kPack<C>; ++e)
            add_product(sums.x[e / kPack<C>][n + e % kPack<C>], w[e / kPack<C>].at[k],
                        v.at[e % kPack<C>]);
        }
      }
    }
  }
  template <class Sees>
  __device__ void add_seen(Sums& sums, const C* weight, int count, int j0, const Sees& sees) const {
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
#pragma unroll
      for (int e = 0; e < kSquare * kColumns; ++e) {
        const int r = e / kColumns;
        C v = values[j * kWidth + column(e % kColumns)];
        if (v - v != 0 && !sees(own_group() * kSquare + r, j0 + j)) v = 0;
        add_product(sums.x[r][e % kColumns], weight[r * kWeightRow + j], v);
      }
    }
  }
  __device__ static Wide<C> pack(const C* from) { return *reinterpret_cast<const Wide<C>*>(from); }
};

}  // namespace ink::cuda
