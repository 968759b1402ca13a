// The parts of attention's kernels on tensor cores (mma.cu, mma_backward.cu): tiles of rows in
// shared memory, and a warp's products of them. bf16 with f32 sums.
//
// Without a mask, scores are not scaled. The scale is part of the exponent, which takes one
// instruction:
//   exp(scale (s - top)) = 2^(c s - c top)
// With a mask, a score is scaled and the mask is added. The top is subtracted first, because a
// score may then be as large as the mask's numbers.
#pragma once

#include <algorithm>
#include <bit>

#include "cuda/attention/attention.cuh"
#include "cuda/mma.cuh"
#include "cuda/pack.cuh"

namespace ink::cuda {

inline constexpr float kLog2e = 1.44269504f;

/// The rows of each head of a tensor, as chunks of 16 bytes can be copied.
template <class E>
struct HeadRows {
  E* data;
  int64_t row, outer, inner;  // from a row to the next; from head to head in two dimensions
  unsigned inner_heads;

  explicit HeadRows(const HeadMatrices<E>& x)
      : data(x.data), row(x.row), outer(0), inner(0), inner_heads(1) {
    const Heads& heads = x.heads;
    if (heads.dims == 2) outer = heads.strides[0];
    if (heads.dims > 0) {
      inner = heads.strides[heads.dims - 1];
      inner_heads = heads.sizes[heads.dims - 1];
    }
  }
  __device__ Matrix<E> operator[](int head) const {
    const unsigned number = static_cast<unsigned>(head), of_outer = number / inner_heads;
    return {data + of_outer * outer + (number - of_outer * inner_heads) * inner, row, 1, true};
  }
};

using MmaProblem = AttentionProblem<bfloat16, HeadRows<const bfloat16>>;

/// The place of chunk `chunk` (eight elements) of row `row` of a tile. A row's chunks are permuted
/// by the row's number, so that the same chunk of eight rows lies in different banks. Chunk 2 k + c
/// is at place(row, c) ^ 16 k, and the chunk of row + 8 n at place(row, chunk) + 8 n kHead.
template <int kHead>
__device__ inline int place(int row, int chunk) {
  static_assert(kHead == 32 || kHead == 64 || kHead == 128);
  const int turn = kHead == 32 ? row / 2 % 4 : row % 8;
  return row * kHead + (chunk ^ turn) * 8;
}

/// Starts copies of kRows rows of a matrix from `first` on to a tile: zeros from row `end` and from
/// column `cols` on.
template <int kRows, int kHead, int kThreads>
__device__ inline void start_rows(bfloat16* tile, const Matrix<const bfloat16>& from, int first,
                                  int end, int cols) {
  constexpr int kChunks = kHead / 8, kStep = kThreads / kChunks;  // rows at a time
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks,
            chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int count = chunk * 8 < cols ? end - first - row : 0;
  const bfloat16* source = from.data + (first + row) * from.row + chunk * 8;
  bfloat16* to = tile + place<kHead>(row, chunk);
#pragma unroll
  for (int r = 0; r < kRows; r += kStep)
    start_copy<16>(to + r * kHead, source + r * from.row, r < count);
}

/// A warp's sums: kTall x 16 rows, kWide x 8 columns, each pair as mma.cuh says. x[m][n][c]: with
/// h = c / 2, of row 16 m + 8 h + g and column 8 n + 2 t + c % 2.
template <int kTall, int kWide>
struct WarpSums {
  float x[kTall][kWide][4] = {};

  __device__ bool finite() const {
    float zero = 0;
#pragma unroll
    for (int e = 0; e < 4 * kTall * kWide; ++e) zero += 0 * x[e / 4 / kWide][e / 4 % kWide][e % 4];
    return zero == 0;
  }
  /// Multiplies row 16 m + 8 h + g by by[m][h].
  __device__ void scale(const float (&by)[kTall][2]) {
#pragma unroll
    for (int e = 0; e < 4 * kTall * kWide; ++e)
      x[e / 4 / kWide][e / 4 % kWide][e % 4] *= by[e / 4 / kWide][e % 4 / 2];
  }
};

/// The softmax of a lane's rows so far: rows 16 m + 8 h + g of the warp's.
template <int kTall, bool kMask>
struct WarpSoftmax {
  float top[kTall][2], total[kTall][2];  // the largest score; the sum of this lane's weights

  __device__ WarpSoftmax() {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) {
      top[r / 2][r % 2] = -infinity<float>();
      total[r / 2][r % 2] = 0;
    }
  }
  /// Turns scores into weights in place. shrink: the factors of sums over earlier keys. c: log2 e,
  /// times the scale where scores are not scaled.
  template <int kWide>
  __device__ void add(WarpSums<kTall, kWide>& s, float (&shrink)[kTall][2], float c) {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) {
      const int m = r / 2, h = r % 2;
      float high = top[m][h];
#pragma unroll
      for (int n = 0; n < kWide; ++n)
        high = fmaxf(high, fmaxf(s.x[m][n][2 * h], s.x[m][n][2 * h + 1]));
      high = fmaxf(high, warp_xor(high, 1));
      high = fmaxf(high, warp_xor(high, 2));
      const float base = high == -infinity<float>() ? 0.0f : high;  // -inf - -inf would be NaN
      shrink[m][h] = exp2_fast(c * (top[m][h] - base));             // exactly 1 where the top stays
      top[m][h] = high;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kWide; ++n) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s.x[m][n][e] = weight(s.x[m][n][e], base, c);
          sum += s.x[m][n][e];
        }
      }
      total[m][h] = total[m][h] * shrink[m][h] + sum;
    }
  }
  /// factor: what makes results of sums; kept: the factor of weights that are not dropped. Writes
  /// the logarithms of the sums of rows `first` to `end` - 1 to lse. scale: of the scores.
  __device__ void finish(float (&factor)[kTall][2], float kept, float* lse, int first, int end,
                         float scale) {
#pragma unroll
    for (int r = 0; r < 2 * kTall; ++r) {
      float& sum = total[r / 2][r % 2];
      sum += warp_xor(sum, 1);
      sum += warp_xor(sum, 2);
      factor[r / 2][r % 2] = sum == 0 ? 0 : kept / sum;  // 0: it saw nothing
      const int i = first + 8 * r + lane_id() / 4;
      if (lane_id() % 4 == 0 && i < end) lse[i] = scale * top[r / 2][r % 2] + simd::log(sum);
    }
  }

 private:
  __device__ static float weight(float score, float base, float c) {
    return exp2_fast(kMask ? c * (score - base) : c * score - c * base);
  }
};

/// kTall x 16 rows of a warp, kDeep x 16 columns: the first operand of products, held in registers.
template <int kTall, int kDeep>
struct Held {
  uint32_t x[kTall][kDeep][4];

  __device__ void get(uint32_t (&a)[4], int m, int k) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[r] = x[m][k][r];
  }
};
/// The same, left in a tile from row0 on.
template <int kHead>
struct InTile {
  const bfloat16* tile;
  int row0;

  __device__ void get(uint32_t (&a)[4], int m, int k) const {
    const int at = place<kHead>(row0 + lane_id() % 16, lane_id() / 16) ^ 16 * k;
    load_matrices(a, tile + at + 16 * m * kHead);
  }
};
template <int kHead, int kTall>
__device__ inline Held<kTall, kHead / 16> hold(const InTile<kHead>& rows) {
  Held<kTall, kHead / 16> held;
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) rows.get(held.x[m][k], m, k);
  }
  return held;
}
/// Rounded sums as the first operand of another product, whose inner dimension is their columns.
template <int kTall, int kWide>
__device__ inline Held<kTall, kWide / 2> hold(const WarpSums<kTall, kWide>& sums) {
  Held<kTall, kWide / 2> held;
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
#pragma unroll
    for (int n = 0; n < kWide; ++n) {
      const float(&c)[4] = sums.x[m][n];
      held.x[m][n / 2][n % 2 * 2] = pack_bf16(c[0], c[1]);
      held.x[m][n / 2][n % 2 * 2 + 1] = pack_bf16(c[2], c[3]);
    }
  }
  return held;
}

/// Adds a's products with 16 columns of b, of which r holds four matrices.
template <int kTall, int kWide>
__device__ inline void add_pair(WarpSums<kTall, kWide>& sums, const uint32_t (&a)[kTall][4],
                                const uint32_t (&r)[4], int n) {
  const uint32_t left[2] = {r[0], r[1]}, right[2] = {r[2], r[3]};
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
    mma_m16n8k16(sums.x[m][n], a[m], left);
    mma_m16n8k16(sums.x[m][n + 1], a[m], right);
  }
}

/// sums += a rows^T, of kWide x 8 rows of a tile from row0 on.
template <int kHead, int kTall, int kWide, class A>
__device__ inline void add_dots(WarpSums<kTall, kWide>& sums, const A& a, const bfloat16* tile,
                                int row0) {
  const int lane = lane_id();
  const int at = place<kHead>(row0 + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
    uint32_t x[kTall][4];
#pragma unroll
    for (int m = 0; m < kTall; ++m) a.get(x[m], m, k);
#pragma unroll
    for (int n = 0; n < kWide; n += 2) {
      uint32_t r[4];
      load_matrices(r, tile + (at ^ 16 * k) + 8 * n * kHead);
      add_pair(sums, x, r, n);
    }
  }
}

/// Zeroes what is not finite.
__device__ inline void keep_finite(uint32_t (&r)[4]) {
#pragma unroll
  for (uint32_t& pair : r) {
    if ((pair & 0x7f80) == 0x7f80) pair &= 0xffff0000u;
    if ((pair & 0x7f800000) == 0x7f800000) pair &= 0xffffu;
  }
}

/// sums += what is not finite of kDeep x 16 rows of a tile from row0 on, where they see it, as
/// if its weight was positive: 0 times infinity gives infinity here, and NaN elsewhere.
template <int kHead, int kDeep, int kTall, class Sees>
__device__ inline void add_not_finite(WarpSums<kTall, kHead / 8>& sums, const bfloat16* tile,
                                      int row0, const Sees& sees) {
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll 1
  for (int other = 0; other < 16 * kDeep; ++other) {
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      const bfloat16* at = tile + place<kHead>(row0 + other, n) + 2 * t;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto x = static_cast<float>(at[e]);
        if (x - x == 0) continue;
#pragma unroll
        for (int r = 0; r < 2 * kTall; ++r)
          if (sees(8 * r + g, other)) sums.x[r / 2][n][r % 2 * 2 + e] += x;
      }
    }
  }
}

/// sums += weights rows, of kDeep x 16 rows of a tile from row0 on. Hidden weights are 0, but 0
/// times NaN is NaN. So blocks whose sums are not finite compute them again with care: what is not
/// finite then reaches only those who see it, sees(row of the sums, row from row0 on).
template <int kHead, bool kCareful, int kTall, int kDeep, class Sees>
__device__ inline void add_rows(WarpSums<kTall, kHead / 8>& sums, const Held<kTall, kDeep>& weights,
                                const bfloat16* tile, int row0, const Sees& sees) {
  const int at = place<kHead>(row0 + lane_id() % 16, lane_id() / 16);
#pragma unroll
  for (int k = 0; k < kDeep; ++k) {
    uint32_t x[kTall][4];
#pragma unroll
    for (int m = 0; m < kTall; ++m) weights.get(x[m], m, k);
#pragma unroll
    for (int n = 0; n < kHead / 8; n += 2) {
      uint32_t r[4];
      load_transposed(r, tile + (at ^ 8 * n) + 16 * k * kHead);
      if (kCareful) keep_finite(r);
      add_pair(sums, x, r, n);
    }
  }
  if constexpr (kCareful) add_not_finite<kHead, kDeep>(sums, tile, row0, sees);
}

/// to(first + row, column) = factor(m, h) sums, below row `end` and column `cols`. The numbers pass
/// through the warp's own rows of a tile, from row0 on.
template <int kHead, int kTall, class F>
__device__ inline void store_rows(const Matrix<bfloat16>& to, int first, int end, int cols,
                                  bfloat16* tile, int row0, const WarpSums<kTall, kHead / 8>& sums,
                                  F&& factor) {
  using Pair = Pack<bfloat16, 2>;
  using Chunk = Pack<bfloat16, 8>;
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  __syncwarp();  // the rows may still be read
#pragma unroll
  for (int m = 0; m < kTall; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float f = factor(m, h);
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        const uint32_t pair = pack_bf16(sums.x[m][n][2 * h] * f, sums.x[m][n][2 * h + 1] * f);
        bfloat16* at = tile + place<kHead>(row0 + 16 * m + 8 * h + g, n) + 2 * t;
        *reinterpret_cast<Pair*>(at) = std::bit_cast<Pair>(pair);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kHead / 8;
  for (int e = lane; e < kTall * 16 * kChunks; e += kWarp) {
    const int row = e / kChunks, chunk = e % kChunks;
    if (first + row < end && chunk * 8 < cols)
      *reinterpret_cast<Chunk*>(&to.at(first + row, chunk * 8)) =
          *reinterpret_cast<const Chunk*>(tile + place<kHead>(row0 + row, chunk));
  }
}

/// The tile and the head that a block takes. Heads are taken in bunches whose keys and values fit
/// in the L2 cache. In a bunch the longest causal tiles (rank 0) come first, so that short ones
/// fill the gaps at the end.
struct BlockPlace {
  int rank, head;
};
__device__ inline BlockPlace place_of_block(int tiles, int heads) {
  constexpr int kBunch = 32;
  const int bunch = static_cast<int>(blockIdx.x) / (kBunch * tiles) * kBunch;
  const int rest = static_cast<int>(blockIdx.x) - bunch * tiles;
  const int size = heads - bunch < kBunch ? heads - bunch : kBunch;
  return {rest / size, bunch + rest % size};
}

/// Sets x to `value` where a query, from i0 on along the rows, does not see a key from j0 on.
template <int kTall, int kWide>
__device__ inline void hide_keys(WarpSums<kTall, kWide>& x, float value, const AttentionSizes& size,
                                 int i0, int j0) {
  const bool past_edge = j0 < i0 + 16 * kTall - 1 + size.edge;
#pragma unroll
  for (int r = 0; r < 2 * kTall; ++r) {
    const int i = i0 + 8 * r + lane_id() / 4, first_column = j0 + lane_id() % 4 * 2;
    const int unseen = i + size.edge - first_column, end = size.seen(i) - first_column;
#pragma unroll
    for (int n = 0; n < 2 * kWide; ++n) {
      const int column = n / 2 * 8 + n % 2;
      if (column >= end || (past_edge && column < unseen))
        x.x[r / 2][n / 2][r % 2 * 2 + n % 2] = value;
    }
  }
}
/// Zeroes x where a key, from j0 on along the rows, is not seen by a query from i0 on, or there is
/// no query.
template <int kWide>
__device__ inline void hide_queries(WarpSums<1, kWide>& x, const AttentionSizes& size, int j0,
                                    int i0) {
  const int first_column = i0 + lane_id() % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Span seeing = size.queries_of(j0 + 8 * h + lane_id() / 4, 1);
#pragma unroll
    for (int n = 0; n < 2 * kWide; ++n) {
      const int column = n / 2 * 8 + n % 2;
      if (column < seeing.first - first_column || column >= seeing.end - first_column)
        x.x[0][n / 2][2 * h + n % 2] = 0;
    }
  }
}

/// Turns products of queries from i0 on and keys from j0 on into scores.
template <int kTall, int kWide>
__device__ inline void look(WarpSums<kTall, kWide>& s, const MmaProblem& problem,
                            int64_t mask_start, int i0, int j0) {
  const int i = i0 + lane_id() / 4, j = j0 + lane_id() % 4 * 2;
#pragma unroll
  for (int n = 0; n < kWide; ++n) {
#pragma unroll
    for (int e = 0; e < 4 * kTall; ++e) {
      float& score = s.x[e / 4][n][e % 4];
      score = problem.score(score, mask_start, i + e / 2 * 8, j + 8 * n + e % 2);
    }
  }
}

/// The same for 16 keys from j0 on and queries from i0 on, with queries along the columns. Bit 4 n
/// + c of the result: does the query of x[0][n][c] see its key?
template <int kWide>
__device__ inline uint32_t look_by_key(WarpSums<1, kWide>& s, const MmaProblem& problem,
                                       int64_t mask_start, int i0, int j0) {
  const int i = i0 + lane_id() % 4 * 2, j = j0 + lane_id() / 4;
  uint32_t seen = 0;
#pragma unroll
  for (int n = 0; n < 4 * kWide; ++n) {
    float& score = s.x[0][n / 4][n % 4];
    score = problem.score(score, mask_start, i + n / 4 * 8 + n % 2, j + n % 4 / 2 * 8);
    seen |= uint32_t{score != -infinity<float>()} << n;
  }
  return seen;
}

/// Which weights of 16 queries from i0 on and kWide x 8 keys from j0 on stay: bit 4 n + c for
/// x[0][n][c] of their WarpSums.
template <int kWide>
__device__ inline uint32_t kept_by_query(const WeightDropout& drop, uint64_t key, int head, int i0,
                                         int j0) {
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  if ((drop.first | drop.keys) % 4 != 0) {
    uint32_t bits = 0;
#pragma unroll 1
    for (int p = 0; p < 2 * kWide; ++p) {
      const int i = i0 + g + p % 2 * 8, j = j0 + p / 2 * 8 + 2 * t;
      bits |= (drop.four_from(key, drop.element(head, i, j)) & 3) << 2 * p;
    }
    return bits;
  }
  // Two lanes need the four bits of a counter. The even lane draws those of row g, the odd one
  // those of row g + 8, and they swap halves.
  const uint64_t counter = drop.element(head, i0 + g + t % 2 * 8, j0 + t / 2 * 4) / 4;
  uint32_t mine = 0;
#pragma unroll
  for (unsigned n = 0; n < kWide; ++n) mine |= drop.four(key, counter + 2 * n) << 4 * n;
  const uint32_t other = warp_xor(mine, 1), low = 0x33333333, high = 0xcccccccc;
  return t % 2 == 0 ? (mine & low) | (other & low) << 2 : (mine & high) | (other >> 2 & low);
}

/// The same for 16 keys from j0 on and kWide x 8 queries from i0 on, with queries along the
/// columns.
template <int kWide>
__device__ inline uint32_t kept_by_key(const WeightDropout& drop, uint64_t key, int head, int i0,
                                       int j0) {
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t bits = 0;
  if ((drop.first | drop.keys) % 4 != 0) {
#pragma unroll 1
    for (int p = 0; p < 4 * kWide; ++p) {
      const int i = i0 + p / 4 * 8 + 2 * t + p % 2, j = j0 + g + p % 4 / 2 * 8;
      bits |= (drop.four_from(key, drop.element(head, i, j)) & 1) << p;
    }
    return bits;
  }
  // Four lanes with consecutive keys need one bit each of four counters. Lane r of them draws the
  // four bits of x[0][n][r], and each lane gathers its own.
  const int r = g % 4;
  const uint64_t counter = drop.element(head, i0 + 2 * t + r % 2, j0 + g / 4 * 4 + r / 2 * 8) / 4;
  const uint64_t step = static_cast<uint64_t>(drop.keys) * 2;  // of eight queries
  uint32_t mine = 0;
#pragma unroll
  for (unsigned n = 0; n < kWide; ++n) mine |= drop.four(key, counter + step * n) << 4 * n;
#pragma unroll
  for (int c = 0; c < 4; ++c)
    bits |= (warp_from(mine, (lane & ~12) | c << 2) >> r & 0x11111111) << c;
  return bits;
}

/// Zeroes the weights of queries from i0 on and keys from j0 on that are dropped.
template <int kTall, int kWide>
__device__ inline void drop(WarpSums<kTall, kWide>& p, const WeightDropout& dropout, uint64_t key,
                            int head, int i0, int j0) {
  constexpr int kEach = kWide < 8 ? kWide : 8;
#pragma unroll
  for (int k = 0; k < kTall * kWide; k += kEach) {
    const int m = k / kWide, n = k % kWide;
    const uint32_t kept = kept_by_query<kEach>(dropout, key, head, i0 + 16 * m, j0 + 8 * n);
#pragma unroll
    for (int e = 0; e < 4 * kEach; ++e)
      if (!(kept >> e & 1)) p.x[m][n + e / 4][e % 4] = 0;
  }
}

/// Calls f.operator()<kHead, kMask, kDrop>(): the size of head for which tiles are made; is there a
/// mask; is there dropout?
template <class F>
void for_kind(const MmaProblem& problem, F&& f) {
  const auto sized = [&]<int kHead>() {
    for_bool(problem.mask.given(), [&](auto mask) {
      for_bool(problem.dropout.on,
               [&](auto drop) { f.template operator()<kHead, mask(), drop()>(); });
    });
  };
  const int widest = std::max(problem.size.d, problem.size.dv);
  if (widest <= 32) return sized.template operator()<32>();
  if (widest <= 64) return sized.template operator()<64>();
  sized.template operator()<128>();
}

}  // namespace ink::cuda
