// Attention backward on tensor cores (the formulas: backward.cu). There are two kernels. In the
// first a block collects dq of 64 queries, and delta; in the second dk and dv of 64 keys. Each
// computes the weights that it needs again, so that blocks share no sum. A warp owns 16 rows, with
// their operands and sums in registers, and takes 32 other rows at a time. In the second kernel the
// scores are transposed, with keys along the rows. So the weights already lie where the next
// product needs its first operand.
#include <type_traits>

#include "cuda/attention/mma_backward.cuh"
#include "cuda/attention/suited.h"

namespace ink::cuda {
namespace {

constexpr int kFourWarps = 128, kTile = 64, kStep = 32, kWide = kStep / 8;
using Scores = WarpSums<1, kWide>;

template <int kHead, bool kMask, bool kDrop>
struct MmaQueryGradient {
  static constexpr int kThreads = kFourWarps, kResident = kHead <= 64 ? 3 : 2;
  using Operand = Held<1, kHead / 16>;
  using Sums = WarpSums<1, kHead / 8>;
  struct Shared {
    alignas(128) bfloat16 k[2][kTile * kHead], v[2][kTile * kHead];
    BlockScratch<int> scratch;
  };
  BackwardProblem problem;
  HeadRows<const bfloat16> out;
  const float* lse;
  HeadRows<bfloat16> dq;
  int tiles;  // of a head's queries

  // A warp's rows: queries first ... first + 15.
  struct Rows {
    int head, first;
    Operand q, dout;
    QueryRow row[2];  // of queries g and g + 8
    int64_t mask_start;
    uint64_t key;  // of dropout
  };

  __device__ void operator()(Shared& shared) const { run_with_care(*this, shared); }
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const BlockPlace place = place_of_block(tiles, size.heads);
    const int i0 = (tiles - 1 - place.rank) * kTile, row0 = warp_id() * 16;
    const int kv_head = place.head / size.group;
    const Span keys = size.keys_of(i0, kTile, kTile);
    const Matrix<const bfloat16> k = problem.k[kv_head], v = problem.v[kv_head];
    const Rows rows = load_rows(shared, place.head, i0, row0);
    __syncthreads();  // the keys will overwrite the memory of these rows
    start_keys(shared, k, v, keys.first, keys.end, 0);
    const Span seen = size.keys_of(rows.first, 16, kStep);
    Sums sums;
    for (int j0 = keys.first, buffer = 0; j0 < keys.end; j0 += kTile, buffer ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      if (j0 + kTile < keys.end) start_keys(shared, k, v, j0 + kTile, keys.end, buffer ^ 1);
#pragma unroll 1
      for (int j = 0; j < kTile && j0 + j < seen.end; j += kStep)
        if (j0 + j >= seen.first)
          step<kCareful>(sums, rows, j0 + j, shared.k[buffer], shared.v[buffer], j);
    }
    wait_for_copies<0>();
    if (!kCareful && block_max<kThreads>(int{!sums.finite()}, shared.scratch) != 0) return false;
    __syncthreads();
    store_rows<kHead>(dq[place.head], rows.first, size.queries, size.d, shared.k[0], row0, sums,
                      [&](int, int) { return problem.scale; });
    return true;
  }

 private:
  __device__ void start_keys(Shared& shared, const Matrix<const bfloat16>& k,
                             const Matrix<const bfloat16>& v, int j0, int end, int buffer) const {
    start_rows<kTile, kHead, kThreads>(shared.k[buffer], k, j0, end, problem.size.d);
    start_rows<kTile, kHead, kThreads>(shared.v[buffer], v, j0, end, problem.size.dv);
    end_copies();
  }

  __device__ Rows load_rows(Shared& shared, int head, int i0, int row0) const {
    const auto& size = problem.size;
    start_rows<kTile, kHead, kThreads>(shared.k[0], problem.q[head], i0, size.queries, size.d);
    start_rows<kTile, kHead, kThreads>(shared.k[1], problem.dout[head], i0, size.queries, size.dv);
    start_rows<kTile, kHead, kThreads>(shared.v[0], out[head], i0, size.queries, size.dv);
    end_copies();
    wait_for_copies<0>();
    __syncthreads();
    Rows rows;
    rows.head = head;
    rows.first = i0 + row0;
    rows.q = hold<kHead, 1>({shared.k[0], row0});
    rows.dout = hold<kHead, 1>({shared.k[1], row0});
    rows.mask_start = kMask ? problem.mask.start(head) : 0;
    rows.key = kDrop ? problem.dropout.key() : 0;
    find_rows<kMask>(rows.row, problem, lse, head, rows.first, rows.dout,
                     hold<kHead, 1>({shared.v[0], row0}));
    return rows;
  }

  // dq += ds k of kStep keys from j0 on: those from row `at` on of the tiles of keys and values.
  template <bool kCareful>
  __device__ void step(Sums& sums, const Rows& rows, int j0, const bfloat16* k, const bfloat16* v,
                       int at) const {
    Scores s, dp;
    add_dots<kHead>(s, rows.q, k, at);
    add_dots<kHead>(dp, rows.dout, v, at);
    if constexpr (kMask) look(s, problem, rows.mask_start, rows.first, j0);
    uint32_t kept = 0;
    if constexpr (kDrop)
      kept = kept_by_query<kWide>(problem.dropout, rows.key, rows.head, rows.first, j0);
    const float factor = static_cast<float>(problem.dropout.kept);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      const QueryRow& row = rows.row[n % 4 / 2];
      const float score = s.x[0][n / 4][n % 4];
      float& ds = dp.x[0][n / 4][n % 4];
      if constexpr (kDrop) ds = kept >> n & 1 ? factor * ds : 0.0f;
      ds = problem.template weight<kMask>(score, row.lse) * (ds - row.delta);
      if (kMask && score == -infinity<float>()) ds = 0;
    }
    if (!kMask && !problem.size.all_see(rows.first, 16, j0, kStep))
      hide_keys(dp, 0, problem.size, rows.first, j0);
    const auto sees = [&](int i, int j) {
      return problem.sees(rows.mask_start, rows.first + i, j0 + j);
    };
    add_rows<kHead, kCareful>(sums, hold(dp), k, at, sees);
  }
};

template <int kHead, bool kMask, bool kDrop>
struct MmaKeyGradient {
  static constexpr int kThreads = kFourWarps, kResident = kHead <= 64 ? 3 : 2;
  static constexpr bool kHold = kHead <= 64;  // keys and values in registers?
  using Operand = std::conditional_t<kHold, Held<1, kHead / 16>, InTile<kHead>>;
  using Sums = WarpSums<1, kHead / 8>;
  struct Tiles {
    alignas(128) bfloat16 q[kTile * kHead], dout[kTile * kHead];
    QueryRow rows[kTile];
  };
  struct Shared {
    Tiles tiles[kHold ? 2 : 3];  // of queries, twice; of keys and values
    BlockScratch<int> scratch;
  };
  BackwardProblem problem;
  HeadRows<bfloat16> dk, dv;
  int tiles;  // of a head's keys

  // A warp's rows: keys first ... first + 15.
  struct Rows {
    int first;
    Operand k, v;
    uint64_t key;  // of dropout
  };

  __device__ void operator()(Shared& shared) const { run_with_care(*this, shared); }
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const BlockPlace place = place_of_block(tiles, size.heads / size.group);
    const int j0 = place.rank * kTile, row0 = warp_id() * 16;
    const Span seeing = size.queries_of(j0, kTile);
    const Rows rows = load_rows(shared.tiles[kHold ? 0 : 2], place.head, j0, row0);
    if constexpr (kHold) __syncthreads();  // the queries will overwrite the memory of these rows
    Sums dk_sums, dv_sums;
    // Loops over tiles of queries of all heads that share the keys.
    int head = place.head * size.group, i0 = seeing.first;
    const int end_head = seeing.first < seeing.end ? head + size.group : head;
    const Span own = rows.first < size.keys ? size.queries_of(rows.first, 16) : Span{};
    if (head < end_head) start_queries(shared.tiles[0], head, i0);
    for (int buffer = 0; head < end_head; buffer ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      const bool last = i0 + kTile >= seeing.end;  // of its head
      const int next_head = last ? head + 1 : head, next_i0 = last ? seeing.first : i0 + kTile;
      if (next_head < end_head) start_queries(shared.tiles[buffer ^ 1], next_head, next_i0);
#pragma unroll 1
      for (int i = 0; i < kTile; i += kStep) {
        if (i0 + i < own.end && i0 + i + kStep > own.first)
          step<kCareful>(dk_sums, dv_sums, rows, head, i0 + i, shared.tiles[buffer], i);
      }
      head = next_head;
      i0 = next_i0;
    }
    const bool finite = dk_sums.finite() && dv_sums.finite();
    if (!kCareful && block_max<kThreads>(int{!finite}, shared.scratch) != 0) return false;
    __syncthreads();
    const float kept = kDrop ? static_cast<float>(problem.dropout.kept) : 1.0f;
    store_rows<kHead>(dk[place.head], rows.first, size.keys, size.d, shared.tiles[0].q, row0,
                      dk_sums, [&](int, int) { return problem.scale; });
    store_rows<kHead>(dv[place.head], rows.first, size.keys, size.dv, shared.tiles[0].dout, row0,
                      dv_sums, [&](int, int) { return kept; });
    return true;
  }

 private:
  __device__ Rows load_rows(Tiles& to, int head, int j0, int row0) const {
    const auto& size = problem.size;
    start_rows<kTile, kHead, kThreads>(to.q, problem.k[head], j0, size.keys, size.d);
    start_rows<kTile, kHead, kThreads>(to.dout, problem.v[head], j0, size.keys, size.dv);
    end_copies();
    wait_for_copies<0>();
    __syncthreads();
    const InTile<kHead> k{to.q, row0}, v{to.dout, row0};
    const uint64_t key = kDrop ? problem.dropout.key() : 0;
    if constexpr (kHold) {
      return {j0 + row0, hold<kHead, 1>(k), hold<kHead, 1>(v), key};
    } else {
      return {j0 + row0, k, v, key};
    }
  }
  // Queries past the last are zeros everywhere, so they add nothing.
  __device__ void start_queries(Tiles& to, int head, int i0) const {
    const auto& size = problem.size;
    start_rows<kTile, kHead, kThreads>(to.q, problem.q[head], i0, size.queries, size.d);
    start_rows<kTile, kHead, kThreads>(to.dout, problem.dout[head], i0, size.queries, size.dv);
    const int i = static_cast<int>(threadIdx.x);
    const QueryRow* row = problem.rows + int64_t{head} * size.queries + i0 + i;
    if (i < kTile) start_copy<sizeof(QueryRow)>(&to.rows[i], row, i0 + i < size.queries);
    end_copies();
  }

  // dv += (m p)^T dout and dk += ds^T q of kStep queries from i0 on: rows of the tile from `at` on.
  template <bool kCareful>
  __device__ void step(Sums& dk_sums, Sums& dv_sums, const Rows& rows, int head, int i0,
                       const Tiles& tile, int at) const {
    const float factor = static_cast<float>(problem.dropout.kept);
    const bool all_see = kMask || (problem.size.all_see(i0, kStep, rows.first, 16) &&
                                   i0 + kStep <= problem.size.queries);
    uint32_t kept = 0, seen = 0;
    if constexpr (kDrop) kept = kept_by_key<kWide>(problem.dropout, rows.key, head, i0, rows.first);
    Scores p, dp;
    add_dots<kHead>(p, rows.k, tile.q, at);
    if constexpr (kMask) seen = look_by_key(p, problem, problem.mask.start(head), i0, rows.first);
    const QueryRow* row = tile.rows + at + lane_id() % 4 * 2;  // of columns 2 t, 2 t + 1
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& x = p.x[0][n / 4][n % 4];
      x = problem.template weight<kMask>(x, row[n / 4 * 8 + n % 2].lse);
      if (kMask && !(seen >> n & 1)) x = 0;  // even if the query's sum is NaN
    }
    if (!all_see) hide_queries(p, problem.size, rows.first, i0);
    const auto sees = [&](int j, int i) {
      return problem.sees(kMask ? problem.mask.start(head) : 0, i0 + i, rows.first + j);
    };
    add_rows<kHead, kCareful>(dv_sums, hold(dropped<kDrop>(p, kept)), tile.dout, at, sees);
    add_dots<kHead>(dp, rows.v, tile.dout, at);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& ds = dp.x[0][n / 4][n % 4];
      if constexpr (kDrop) ds = kept >> n & 1 ? factor * ds : 0.0f;
      ds = p.x[0][n / 4][n % 4] * (ds - row[n / 4 * 8 + n % 2].delta);
      if (kMask && !(seen >> n & 1)) ds = 0;
    }
    if (!all_see) hide_queries(dp, problem.size, rows.first, i0);
    add_rows<kHead, kCareful>(dk_sums, hold(dp), tile.q, at, sees);
  }
};

}  // namespace

void attention_mma_backward(AttentionGradients& d, const Array& dout, const Array& out,
                            const Array& lse, const AttentionInputs& in) {
  Array rows = Array::empty(Shape{lse.numel(), 2}, lse.dtype(), lse.device());
  const BackwardProblem problem{MmaProblem(in), HeadRows(matrices_of<bfloat16>(dout)),
                                reinterpret_cast<QueryRow*>(rows.mutable_data<float>())};
  if (suits_attention_wgmma(in)) return attention_wgmma_backward(d, problem, out, lse);
  const auto& size = problem.size;
  for_kind(problem, [&]<int kHead, bool kMask, bool kDrop>() {
    const int64_t query_tiles = blocks_for(size.queries, kTile),
                  key_tiles = blocks_for(size.keys, kTile);
    launch("attention_backward", size.heads * query_tiles,
           MmaQueryGradient<kHead, kMask, kDrop>{
               problem, HeadRows(matrices_of<bfloat16>(out)), lse.data<float>(),
               HeadRows(matrices_of<bfloat16>(d.dq)), static_cast<int>(query_tiles)});
    launch("attention_backward", size.heads / size.group * key_tiles,
           MmaKeyGradient<kHead, kMask, kDrop>{problem, HeadRows(matrices_of<bfloat16>(d.dk)),
                                               HeadRows(matrices_of<bfloat16>(d.dv)),
                                               static_cast<int>(key_tiles)});
  });
}

}  // namespace ink::cuda
