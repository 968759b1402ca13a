// Attention forward on Hopper's tensor cores (the formula: forward.cu). Each consumer takes 64
// queries, and loops over tiles of keys. The product of one tile's scores and that of the previous
// tile's weights run while it computes a softmax. What bounds the loop: heads of 64 need as many
// cycles for exponentials (16 a cycle) as for products (4096 FLOPs a cycle).
#include <cstdlib>

#include "cuda/attention/suited.h"
#include "cuda/attention/wgmma.cuh"

namespace ink::cuda {
namespace {

template <int kHead, bool kDrop>
struct WgmmaForward {
  static constexpr int kThreads = kSpecialised, kResident = 1;
  static constexpr int kQueries = 64 * kConsumers, kKeys = 128, kWide = kKeys / 8,
                       kStages = kHead <= 64 ? 3 : 2;
  using Sums = WarpSums<1, kHead / 8>;
  using Softmax = WarpSoftmax<1, false>;
  struct Shared {
    PanelTile<kQueries, kHead> q;
    PanelTile<kKeys, kHead> k[kStages], v[kStages];
    bfloat16 out[kQueries * kHead];
    Queue<1> queries;
    Queue<kStages> keys, values;
  };
  MmaProblem problem;
  HeadRows<bfloat16> out;
  float* lse;
  Units units;

  __device__ void operator()(Shared& shared) const {
    start_queues(shared.queries, shared.keys, shared.values);
    specialise<56, 224>(
        [&] {
          const auto& size = problem.size;
          produce_keys<kQueries, kKeys, kStages>(shared, problem, units, [&](int head, int i0) {
            shared.q.start_copy(problem.q[head], i0, size.queries, size.d);
          });
        },
        [&] { consume(shared); });
  }

 private:
  __device__ void consume(Shared& shared) const {
    const int row0 = (warp_id() - 4) * 16, turn = warp_id() / 4;  // turn: 1, 2
    if (turn == 2) report(1, kConsumers * kWarpgroup);
    Place<1> query;
    Place<kStages> key, value;
    units.each([&](int head, int tile) {
      const int first = tile * kQueries + row0;
      const Span keys = problem.size.keys_of(tile * kQueries, kQueries, kKeys);
      query.wait_full(shared.queries);
      const auto q = shared.q.rows(row0);
      query.release(shared.queries);
      Softmax softmax;
      Sums sums;
      if (keys.first < keys.end)
        walk(shared, head, first, keys, turn, q, key, value, softmax, sums);
      const auto& size = problem.size;
      float factor[1][2];
      softmax.finish(factor, kDrop ? static_cast<float>(problem.dropout.kept) : 1.0f,
                     lse + int64_t{head} * size.queries, first, size.queries, problem.scale);
      store_rows<kHead>(out[head], first, size.queries, size.dv, shared.out, row0, sums,
                        [&](int, int h) { return factor[0][h]; });
    });
    if (turn == 1) meet(1, kConsumers * kWarpgroup);
  }

  __device__ static void await_turn(int turn) { meet(turn, kConsumers * kWarpgroup); }
  __device__ static void end_turn(int turn) { report(3 - turn, kConsumers * kWarpgroup); }

  __device__ void walk(Shared& shared, int head, int first, const Span& keys, int turn,
                       const Held<1, kHead / 16>& q, Place<kStages>& key, Place<kStages>& value,
                       Softmax& softmax, Sums& sums) const {
    const float c = problem.scale * kLog2e;
    WarpSums<1, kWide> s;
    float shrink[1][2];
    key.wait_full(shared.keys);
    await_turn(turn);
    before_products();
    start_dots(s.x[0], q, shared.k[key.stage]);
    end_products();
    end_turn(turn);
    wait_for_products<0>();
    settle(s.x[0]);
    key.release(shared.keys);
    weigh(s, head, first, keys.first, c, softmax, shrink);
    auto p = operand_of(s);
    for (int j0 = keys.first + kKeys; j0 < keys.end; j0 += kKeys) {
      key.wait_full(shared.keys);
      value.wait_full(shared.values);
      await_turn(turn);
      before_products(sums.x[0]);
      start_dots(s.x[0], q, shared.k[key.stage]);
      end_products();
      start_rows_product(sums.x[0], p, shared.v[value.stage]);
      end_products();
      end_turn(turn);
      wait_for_products<1>();
      settle(s.x[0]);
      key.release(shared.keys);
      weigh(s, head, first, j0, c, softmax, shrink);
      wait_for_products<0>();
      settle(sums.x[0]);
      value.release(shared.values);
      sums.scale(shrink);
      p = operand_of(s);
    }
    value.wait_full(shared.values);
    before_products(sums.x[0]);
    start_rows_product(sums.x[0], p, shared.v[value.stage]);
    end_products();
    wait_for_products<0>();
    settle(sums.x[0]);
    value.release(shared.values);
  }

  // Turns the products of keys from j0 on into weights.
  __device__ void weigh(WarpSums<1, kWide>& s, int head, int first, int j0, float c,
                        Softmax& softmax, float (&shrink)[1][2]) const {
    if (!problem.size.all_see(first, 16, j0, kKeys))
      hide_keys(s, -infinity<float>(), problem.size, first, j0);
    softmax.add(s, shrink, c);
    if constexpr (kDrop) drop(s, problem.dropout, problem.dropout.key(), head, first, j0);
  }
};

}  // namespace

bool suits_attention_wgmma(const AttentionInputs& in) {
  static const char* const set = std::getenv("INKLING_WGMMA");
  const char mode = set != nullptr ? set[0] : ' ';
  if (mode == '0' || (mode != '1' && in.rule.dropout_p > 0)) return false;
  const int64_t widest = std::max(in.q.size(-1), in.v.size(-1));
  return compute_capability() == 9 && !in.mask.defined() && widest > 32;
}

void attention_wgmma(Array& out, Array& lse, const AttentionInputs& in) {
  const MmaProblem problem(in);
  for_wgmma(problem, [&]<int kHead, bool kDrop>() {
    using Kernel = WgmmaForward<kHead, kDrop>;
    const Units units(problem.size.heads, problem.size.queries, Kernel::kQueries);
    launch("attention", units.blocks(),
           Kernel{problem, HeadRows(matrices_of<bfloat16>(out)), lse.mutable_data<float>(), units});
  });
}

}  // namespace ink::cuda
