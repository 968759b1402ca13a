// Attention forward on tensor cores (the formula: forward.cu). A block of four warps takes 128
// queries, 32 for each warp, and loops over tiles of 64 keys. While it works on one tile of keys
// and values, the next one is copied to shared memory. Dao 2023, "FlashAttention-2".
#include "cuda/attention/mma.cuh"
#include "cuda/attention/suited.h"

namespace ink::cuda {
namespace {

constexpr int kTall = 2;

template <int kHead, bool kMask, bool kDrop>
struct MmaForward {
  static constexpr int kThreads = 128, kResident = 2, kRows = 16 * kTall,
                       kQueries = kThreads / kWarp * kRows;
  static constexpr int kKeys = kHead <= 64 ? 64 : 32, kWide = kKeys / 8;
  static constexpr bool kHold = kHead <= 64 && !kMask && !kDrop;  // the queries in registers?
  using Sums = WarpSums<kTall, kHead / 8>;
  struct Shared {
    alignas(128) bfloat16 q[kQueries * kHead], k[2][kKeys * kHead], v[2][kKeys * kHead];
    BlockScratch<int> scratch;
  };
  MmaProblem problem;
  HeadRows<bfloat16> out;
  float* lse;
  int tiles;  // of a head's queries

  // What a block works on. row0: the warp's first row of the tile.
  struct Work {
    int head, i0, row0;
    Span keys;  // that the tile sees
    Matrix<const bfloat16> k, v;
    int64_t mask_start;
    uint64_t key;  // of dropout
  };

  __device__ void operator()(Shared& shared) const { run_with_care(*this, shared); }
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const BlockPlace place = place_of_block(tiles, size.heads);
    const int i0 = (tiles - 1 - place.rank) * kQueries, kv_head = place.head / size.group;
    const Work work{place.head,
                    i0,
                    warp_id() * kRows,
                    size.keys_of(i0, kQueries, kKeys),
                    problem.k[kv_head],
                    problem.v[kv_head],
                    kMask ? problem.mask.start(place.head) : 0,
                    kDrop ? problem.dropout.key() : 0};
    start_rows<kQueries, kHead, kThreads>(shared.q, problem.q[place.head], i0, size.queries,
                                          size.d);
    start_keys(shared, work, work.keys.first, 0);
    wait_for_copies<0>();
    __syncthreads();
    const InTile<kHead> q{shared.q, work.row0};
    if constexpr (kHold) {
      return walk<kCareful>(shared, work, hold<kHead, kTall>(q));
    } else {
      return walk<kCareful>(shared, work, q);
    }
  }

 private:
  __device__ void start_keys(Shared& shared, const Work& work, int j0, int buffer) const {
    start_rows<kKeys, kHead, kThreads>(shared.k[buffer], work.k, j0, work.keys.end, problem.size.d);
    start_rows<kKeys, kHead, kThreads>(shared.v[buffer], work.v, j0, work.keys.end,
                                       problem.size.dv);
    end_copies();
  }

  template <bool kCareful, class Queries>
  __device__ bool walk(Shared& shared, const Work& work, const Queries& q) const {
    const auto& size = problem.size;
    const int first = work.i0 + work.row0;  // the warp's rows are [first, first + kRows)
    const Span seen = size.keys_of(first, kRows, kKeys);
    const float c = kMask ? kLog2e : problem.scale * kLog2e;
    WarpSoftmax<kTall, kMask> softmax;
    Sums sums;
    for (int j0 = work.keys.first, buffer = 0; j0 < work.keys.end; j0 += kKeys, buffer ^= 1) {
      if (j0 + kKeys < work.keys.end) start_keys(shared, work, j0 + kKeys, buffer ^ 1);
      if (j0 >= seen.first && j0 < seen.end) {
        WarpSums<kTall, kWide> s;
        add_dots<kHead>(s, q, shared.k[buffer], 0);
        if constexpr (kMask) {
          look(s, problem, work.mask_start, first, j0);
        } else if (!size.all_see(first, kRows, j0, kKeys)) {
          hide_keys(s, -infinity<float>(), size, first, j0);
        }
        float shrink[kTall][2];
        softmax.add(s, shrink, c);
        sums.scale(shrink);
        if constexpr (kDrop) drop(s, problem.dropout, work.key, work.head, first, j0);
        const auto sees = [&](int i, int j) {
          return problem.sees(work.mask_start, first + i, j0 + j);
        };
        add_rows<kHead, kCareful>(sums, hold(s), shared.v[buffer], 0, sees);
      }
      wait_for_copies<0>();
      __syncthreads();
    }
    if (!kCareful && block_max<kThreads>(int{!sums.finite()}, shared.scratch) != 0) return false;
    float factor[kTall][2];
    softmax.finish(factor, kDrop ? static_cast<float>(problem.dropout.kept) : 1.0f,
                   lse + int64_t{work.head} * size.queries, first, size.queries,
                   kMask ? 1 : problem.scale);
    store_rows<kHead>(out[work.head], first, size.queries, size.dv, shared.q, work.row0, sums,
                      [&](int m, int h) { return factor[m][h]; });
    return true;
  }
};

}  // namespace

bool suits_attention_mma(const Array& mask, const AttentionRule& rule,
                         std::initializer_list<const Array*> rows) {
  if (rule.scale <= 0) return false;
  if (mask.defined() && mask.dtype() != DType::boolean && mask.dtype() != f32) return false;
  for (const Array* x : rows) {
    if (x->dtype() != bf16 || x->size(-1) > 128) return false;
    const auto matrices = matrices_of<bfloat16>(*x);
    if (!matrices.in_packs || matrices.heads.dims > 2) return false;
  }
  return true;
}

void attention_mma(Array& out, Array& lse, const AttentionInputs& in) {
  if (suits_attention_wgmma(in)) return attention_wgmma(out, lse, in);
  const MmaProblem problem(in);
  for_kind(problem, [&]<int kHead, bool kMask, bool kDrop>() {
    using Kernel = MmaForward<kHead, kMask, kDrop>;
    const int64_t tiles = blocks_for(problem.size.queries, Kernel::kQueries);
    launch("attention", problem.size.heads * tiles,
           Kernel{problem, HeadRows(matrices_of<bfloat16>(out)), lse.mutable_data<float>(),
                  static_cast<int>(tiles)});
  });
}

}  // namespace ink::cuda
