// Attention backward on Hopper's tensor cores (the formulas: backward.cu), in two kernels as in
// mma_backward.cu: the first collects dq, and the second dk and dv. So the weights lie in registers
// as the first operand of the next product, no sum is shared by blocks, and every run gives the
// same bits. Products bound them: seven for each pair of tiles, of which two, and the exponentials,
// are computed twice. Products of one tile's sums run while the next one's weights are computed.
#include <utility>

#include "cuda/attention/mma_backward.cuh"
#include "cuda/attention/wgmma.cuh"

namespace ink::cuda {
namespace {

template <int kHead>
using Own = decltype(own_rows(std::declval<PanelTile<64 * kConsumers, kHead>>(), 0));
constexpr int kOwn = 64 * kConsumers, kOther = 64, kWide = kOther / 8;  // rows of a block, a stage
using Scores = WarpSums<1, kWide>;

template <int kHead, bool kDrop>
struct WgmmaQueryGradient {
  static constexpr int kThreads = kSpecialised, kResident = 1, kStages = kHead <= 64 ? 4 : 2;
  using Sums = WarpSums<1, kHead / 8>;
  struct Shared {
    PanelTile<kOwn, kHead> q, dout, out;
    PanelTile<kOther, kHead> k[kStages], v[kStages];
    bfloat16 dq[kOwn * kHead];
    Queue<1> queries;
    Queue<kStages> keys, values;
  };
  BackwardProblem problem;
  HeadRows<const bfloat16> out;
  const float* lse;
  HeadRows<bfloat16> dq;
  Units units;

  __device__ void operator()(Shared& shared) const {
    start_queues(shared.queries, shared.keys, shared.values);
    const auto& size = problem.size;
    specialise<56, 224>(
        [&] {
          produce_keys<kOwn, kOther, kStages>(shared, problem, units, [&](int head, int i0) {
            shared.q.start_copy(problem.q[head], i0, size.queries, size.d);
            shared.dout.start_copy(problem.dout[head], i0, size.queries, size.dv);
            shared.out.start_copy(out[head], i0, size.queries, size.dv);
          });
        },
        [&] { consume(shared); });
  }

 private:
  // A warp's rows: queries first ... first + 15.
  struct Rows {
    int head, first;
    Own<kHead> q, dout;
    QueryRow row[2];
  };

  __device__ void consume(Shared& shared) const {
    const int warp = warp_from(warp_id(), 0), row0 = (warp - 4) * 16;
    Place<1> query;
    Place<kStages> key, value;
    units.each([&](int head, int tile) {
      query.wait_full(shared.queries);
      Rows rows{
          head, tile * kOwn + row0, own_rows(shared.q, row0), own_rows(shared.dout, row0), {}};
      find_rows<false>(rows.row, problem, lse, head, rows.first, shared.dout.rows(row0),
                       shared.out.rows(row0));
      if constexpr (kHold<kHead>) query.release(shared.queries);
      const Span keys = problem.size.keys_of(tile * kOwn, kOwn, kOther);
      // All warps of a warpgroup take the tiles up to the last that its last query sees.
      const Span used{keys.first, problem.size.keys_of(rows.first & ~63, 64, kOther).end};
      Sums sums;
      walk(shared, rows, used, key, value, sums);
      for (int t = used.tiles(kOther); t < keys.tiles(kOther); ++t) {
        key.wait_full(shared.keys);
        key.release(shared.keys);
        value.wait_full(shared.values);
        value.release(shared.values);
      }
      if constexpr (!kHold<kHead>) query.release(shared.queries);
      store_rows<kHead>(dq[head], rows.first, problem.size.queries, problem.size.d, shared.dq, row0,
                        sums, [&](int, int) { return problem.scale; });
    });
  }

  __device__ void walk(Shared& shared, const Rows& rows, const Span& keys, Place<kStages>& key,
                       Place<kStages>& value, Sums& sums) const {
    if (keys.first >= keys.end) return;
    settle(sums.x[0]);
    Scores s, dp;
    key.wait_full(shared.keys);
    value.wait_full(shared.values);
    start_scores(shared, rows, key, value, s, dp);
    finish_scores<0>(shared, rows, keys.first, value, s, dp);
    auto ds = operand_of(dp);
    for (int j0 = keys.first + kOther; j0 < keys.end; j0 += kOther) {
      Place<kStages> next = key;
      next.next();
      next.wait_full(shared.keys);
      value.wait_full(shared.values);
      start_scores(shared, rows, next, value, s, dp);
      start_rows_product(sums.x[0], ds, shared.k[key.stage]);
      end_products();
      finish_scores<1>(shared, rows, j0, value, s, dp);
      wait_for_products<0>();
      settle(sums.x[0]);
      key.release(shared.keys);
      ds = operand_of(dp);
    }
    before_products(sums.x[0]);
    start_rows_product(sums.x[0], ds, shared.k[key.stage]);
    end_products();
    wait_for_products<0>();
    settle(sums.x[0]);
    key.release(shared.keys);
  }
  // In two groups, because weights need only the scores.
  __device__ void start_scores(Shared& shared, const Rows& rows, const Place<kStages>& key,
                               const Place<kStages>& value, Scores& s, Scores& dp) const {
    before_products();
    start_dots(s.x[0], rows.q, shared.k[key.stage]);
    end_products();
    start_dots(dp.x[0], rows.dout, shared.v[value.stage]);
    end_products();
  }
  // Makes ds of dp. kLater: groups of products that were started after them.
  template <int kLater>
  __device__ void finish_scores(Shared& shared, const Rows& rows, int j0, Place<kStages>& value,
                                Scores& s, Scores& dp) const {
    const bool all_see = problem.size.all_see(rows.first, 16, j0, kOther);
    uint32_t kept = 0;
    if constexpr (kDrop)
      kept =
          kept_by_query<kWide>(problem.dropout, problem.dropout.key(), rows.head, rows.first, j0);
    wait_for_products<kLater + 1>();
    settle(s.x[0]);
    if (!all_see) hide_keys(s, -infinity<float>(), problem.size, rows.first, j0);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& weight = s.x[0][n / 4][n % 4];
      weight = problem.template weight<false>(weight, rows.row[n % 4 / 2].lse);
    }
    wait_for_products<kLater>();
    settle(dp.x[0]);
    value.release(shared.values);
    if (!all_see) hide_keys(dp, 0, problem.size, rows.first, j0);
    const float factor = static_cast<float>(problem.dropout.kept);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& ds = dp.x[0][n / 4][n % 4];
      if constexpr (kDrop) ds = kept >> n & 1 ? factor * ds : 0.0f;
      ds = s.x[0][n / 4][n % 4] * (ds - rows.row[n % 4 / 2].delta);
    }
  }
};

/// The saved numbers of kOther queries (QueryRow).
struct alignas(16) RowsOfQueries {
  float lse[kOther], delta[kOther];

  /// Of columns 2 t and 2 t + 1 of each eight.
  __device__ static void get(Pack<float, 2> (&pairs)[kWide], const float* from) {
#pragma unroll
    for (int n = 0; n < kWide; ++n)
      pairs[n] = *reinterpret_cast<const Pack<float, 2>*>(from + 8 * n + lane_id() % 4 * 2);
  }
};

template <int kHead, bool kDrop>
struct WgmmaKeyGradient {
  static constexpr int kThreads = kSpecialised, kResident = 1, kStages = kHead <= 64 ? 4 : 2;
  static constexpr bool kAhead = kHead <= 64;  // the next tile's scores while sums are computed?
  using Tile = PanelTile<kOwn, kHead>;
  using Sums = WarpSums<1, kHead / 8>;
  struct Shared {
    Tile k, v;
    PanelTile<kOther, kHead> q[kStages], dout[kStages];
    RowsOfQueries rows[kStages];
    bfloat16 out[kOwn * kHead];
    Queue<1> keys;
    Queue<kStages> queries;
  };
  BackwardProblem problem;
  HeadRows<bfloat16> dk, dv;
  Units units;

  __device__ void operator()(Shared& shared) const {
    start_queues(shared.keys, shared.queries);
    constexpr int kFew = kHead <= 64 ? 40 : 24, kMany = kHead <= 64 ? 232 : 240;
    specialise<kFew, kMany>([&] { produce(shared); }, [&] { consume(shared); });
  }

 private:
  // The tiles of queries that see the block's keys, from j0 on: of each head that shares them.
  struct Queries {
    Span own;             // of a head's
    int count, head, i0;  // tiles in all; the current tile

    __device__ Queries(const AttentionSizes& size, int kv_head, int j0)
        : own(size.queries_of(j0, kOwn)),
          count(own.tiles(kOther) * size.group),
          head(kv_head * size.group),
          i0(own.first) {}
    /// Goes on to the next tile.
    __device__ void next() {
      i0 += kOther;
      if (i0 < own.end) return;
      ++head;
      i0 = own.first;
    }
  };

  __device__ void produce(Shared& shared) const {
    const auto& size = problem.size;
    Announcer announcer;
    Place<1> key;
    Place<kStages> place;
    units.each([&](int kv_head, int tile) {
      const int j0 = tile * kOwn;
      key.wait_free(shared.keys, announcer);
      shared.k.start_copy(problem.k[kv_head], j0, size.keys, size.d);
      shared.v.start_copy(problem.v[kv_head], j0, size.keys, size.dv);
      announcer.add(shared.keys.full[0]);
      key.next();
      Queries queries(size, kv_head, j0);
      for (int t = 0; t < queries.count; ++t, place.next(), queries.next()) {
        const int head = queries.head, i0 = queries.i0, s = place.stage;
        place.wait_free(shared.queries, announcer);
        shared.q[s].start_copy(problem.q[head], i0, size.queries, size.d);
        shared.dout[s].start_copy(problem.dout[head], i0, size.queries, size.dv);
        const int i = static_cast<int>(threadIdx.x);
        const QueryRow* row = problem.rows + int64_t{head} * size.queries + i0 + i;
        if (i < kOther) {
          start_copy<sizeof(float)>(&shared.rows[s].lse[i], &row->lse, i0 + i < size.queries);
          start_copy<sizeof(float)>(&shared.rows[s].delta[i], &row->delta, i0 + i < size.queries);
        }
        announcer.add(shared.queries.full[s]);
      }
    });
    announcer.finish();
  }

  __device__ void consume(Shared& shared) const {
    const auto& size = problem.size;
    const int warp = warp_from(warp_id(), 0), row0 = (warp - 4) * 16;
    Place<1> key;
    Place<kStages> place;
    units.each([&](int kv_head, int tile) {
      const int first = tile * kOwn + row0;
      Queries queries(size, kv_head, tile * kOwn);
      key.wait_full(shared.keys);
      Sums dk_sums, dv_sums;
      const Rows rows{first, own_rows(shared.k, row0), own_rows(shared.v, row0)};
      if constexpr (kHold<kHead>) key.release(shared.keys);
      walk(shared, rows, queries, place, dk_sums, dv_sums);
      if constexpr (!kHold<kHead>) key.release(shared.keys);
      const float kept = kDrop ? static_cast<float>(problem.dropout.kept) : 1.0f;
      store_rows<kHead>(dk[kv_head], first, size.keys, size.d, shared.out, row0, dk_sums,
                        [&](int, int) { return problem.scale; });
      store_rows<kHead>(dv[kv_head], first, size.keys, size.dv, shared.out, row0, dv_sums,
                        [&](int, int) { return kept; });
    });
  }

  // A warp's rows: keys first ... first + 15.
  struct Rows {
    int first;
    Own<kHead> k, v;
  };

  __device__ void walk(Shared& shared, const Rows& rows, Queries& queries, Place<kStages>& place,
                       Sums& dk_sums, Sums& dv_sums) const {
    // The warpgroup's first key, which no earlier query sees.
    const int own = rows.first & ~63;
    int t = own < problem.size.keys
                ? (problem.size.queries_of(own, 64).first - queries.own.first) / kOther
                : queries.count;
    if (t > queries.count) t = queries.count;
    for (int skipped = 0; skipped < t; ++skipped) {
      place.wait_full(shared.queries);
      place.release(shared.queries);
      queries.next();
    }
    if (t == queries.count) return;
    Scores p, dp;
    uint32_t kept = kept_of(queries, rows.first);
    start_scores(shared, rows, place, p, dp);
    finish_scores<0>(shared.rows[place.stage], rows.first, queries, kept, p, dp);
    for (++t; t < queries.count; ++t) {
      const auto weights = operand_of(dropped<kDrop>(p, kept)), ds = operand_of(dp);
      queries.next();
      Place<kStages> next = place;
      next.next();
      if constexpr (kAhead) start_scores(shared, rows, next, p, dp);
      start_sums(shared, weights, ds, place, dk_sums, dv_sums);
      kept = kept_of(queries, rows.first);
      if constexpr (!kAhead) {
        finish_sums(shared, place, dk_sums, dv_sums);
        start_scores(shared, rows, next, p, dp);
      }
      finish_scores<kAhead>(shared.rows[next.stage], rows.first, queries, kept, p, dp);
      if constexpr (kAhead) finish_sums(shared, place, dk_sums, dv_sums);
    }
    const auto weights = operand_of(dropped<kDrop>(p, kept)), ds = operand_of(dp);
    start_sums(shared, weights, ds, place, dk_sums, dv_sums);
    finish_sums(shared, place, dk_sums, dv_sums);
  }
  // In two groups, because weights need only the scores.
  __device__ void start_scores(Shared& shared, const Rows& rows, const Place<kStages>& place,
                               Scores& s, Scores& dp) const {
    place.wait_full(shared.queries);
    before_products();
    start_dots(s.x[0], rows.k, shared.q[place.stage]);
    end_products();
    start_dots(dp.x[0], rows.v, shared.dout[place.stage]);
    end_products();
  }
  __device__ static void start_sums(Shared& shared, const Held<1, kOther / 16>& weights,
                                    const Held<1, kOther / 16>& ds, const Place<kStages>& place,
                                    Sums& dk_sums, Sums& dv_sums) {
    before_products(dv_sums.x[0], dk_sums.x[0]);
    start_rows_product(dv_sums.x[0], weights, shared.dout[place.stage]);
    start_rows_product(dk_sums.x[0], ds, shared.q[place.stage]);
    end_products();
  }
  __device__ static void finish_sums(Shared& shared, Place<kStages>& place, Sums& dk_sums,
                                     Sums& dv_sums) {
    wait_for_products<0>();
    settle(dv_sums.x[0]);
    settle(dk_sums.x[0]);
    place.release(shared.queries);
  }
  // Which weights stay.
  __device__ uint32_t kept_of(const Queries& queries, int first) const {
    if constexpr (!kDrop) return 0;
    const auto& drop = problem.dropout;
    return kept_by_key<kWide>(drop, drop.key(), queries.head, queries.i0, first);
  }
  // Makes weights of p and ds of dp. kLater: groups of products that were started after them.
  template <int kLater>
  __device__ void finish_scores(const RowsOfQueries& rows, int first, const Queries& queries,
                                uint32_t kept, Scores& p, Scores& dp) const {
    const int i0 = queries.i0;
    Pack<float, 2> lse[kWide], delta[kWide];
    rows.get(lse, rows.lse);
    const bool all_see =
        problem.size.all_see(i0, kOther, first, 16) && i0 + kOther <= problem.size.queries;
    wait_for_products<kLater + 1>();
    settle(p.x[0]);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& weight = p.x[0][n / 4][n % 4];
      weight = problem.template weight<false>(weight, lse[n / 4].at[n % 2]);
    }
    // After the weights, because a hidden query's own sum may be NaN.
    if (!all_see) hide_queries(p, problem.size, first, i0);
    wait_for_products<kLater>();
    settle(dp.x[0]);
    rows.get(delta, rows.delta);
    const float factor = static_cast<float>(problem.dropout.kept);
#pragma unroll
    for (int n = 0; n < 4 * kWide; ++n) {
      float& ds = dp.x[0][n / 4][n % 4];
      if constexpr (kDrop) ds = kept >> n & 1 ? factor * ds : 0.0f;
      ds = p.x[0][n / 4][n % 4] * (ds - delta[n / 4].at[n % 2]);
    }
    if (!all_see) hide_queries(dp, problem.size, first, i0);
  }
};

}  // namespace

void attention_wgmma_backward(AttentionGradients& d, const BackwardProblem& problem,
                              const Array& out, const Array& lse) {
  const auto& size = problem.size;
  for_wgmma(problem, [&]<int kHead, bool kDrop>() {
    const Units queries(size.heads, size.queries, kOwn),
        keys(size.heads / size.group, size.keys, kOwn);
    launch("attention_backward", queries.blocks(),
           WgmmaQueryGradient<kHead, kDrop>{problem, HeadRows(matrices_of<bfloat16>(out)),
                                            lse.data<float>(),
                                            HeadRows(matrices_of<bfloat16>(d.dq)), queries});
    launch("attention_backward", keys.blocks(),
           WgmmaKeyGradient<kHead, kDrop>{problem, HeadRows(matrices_of<bfloat16>(d.dk)),
                                          HeadRows(matrices_of<bfloat16>(d.dv)), keys});
  });
}

}  // namespace ink::cuda
