// The parts of attention's kernels for Hopper's tensor cores (wgmma.cu, wgmma_backward.cu). A
// block has one producer, a warpgroup that copies tiles to shared memory, and two consumers that
// compute. The producer runs ahead by the stages of a queue. Shah et al. 2024, "FlashAttention-3".
// The kernels take no mask. A NaN in a tile reaches all rows that use the tile, also those from
// which the causal triangle hides it: the weight there is 0, but 0 times NaN is NaN.
#pragma once

#include "cuda/attention/mma.cuh"
#include "cuda/wgmma.cuh"

namespace ink::cuda {

inline constexpr int kConsumers = 2, kSpecialised = (1 + kConsumers) * kWarpgroup;
inline constexpr int kPanelCols = 64;

/// kRows rows of kHead columns in panels, as products read them.
template <int kRows, int kHead>
struct alignas(1024) PanelTile {
  static constexpr int kPanel = kRows * kPanelCols, kPanelBytes = kPanel * 2;
  bfloat16 data[kRows * kHead];

  /// By the producer's threads.
  __device__ void start_copy(const Matrix<const bfloat16>& from, int first, int end, int cols) {
#pragma unroll 1
    for (int p = 0; p < kHead / kPanelCols; ++p) {
      Matrix<const bfloat16> part = from;
      part.data += p * kPanelCols;
      start_rows<kRows, kPanelCols, kWarpgroup>(data + p * kPanel, part, first, end,
                                                cols - p * kPanelCols);
    }
  }
  /// Rows from row0 on as operands of a warp.
  __device__ Held<1, kHead / 16> rows(int row0) const {
    Held<1, kHead / 16> held;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k)
      InTile<kPanelCols>{data + k / 4 * kPanel, row0}.get(held.x[0][k], 0, k % 4);
    return held;
  }
};

/// A warpgroup's 64 rows of a tile, left there.
template <int kRows, int kHead>
struct OwnRows {
  const PanelTile<kRows, kHead>& tile;
  int row0;
};

/// Are a consumer's own rows held in registers?
template <int kHead>
constexpr bool kHold = kHead <= 64;
/// A consumer's own rows as the first operand of products. row0: the warp's first.
template <int kRows, int kHead>
__device__ inline auto own_rows(const PanelTile<kRows, kHead>& tile, int row0) {
  if constexpr (kHold<kHead>) {
    return tile.rows(row0);
  } else {
    return OwnRows<kRows, kHead>{tile, row0 & ~63};
  }
}

/// Starts s = a tile^T.
template <int kRows, int kHead>
__device__ inline void start_dots(float (&s)[kRows / 8][4], const Held<1, kHead / 16>& a,
                                  const PanelTile<kRows, kHead>& tile) {
  using Tile = PanelTile<kRows, kHead>;
  const SharedMatrix b(tile.data);
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k)
    start_product<kRows, false>(s, a.x[0][k], b + k / 4 * Tile::kPanelBytes + k % 4 * 32, k > 0);
}
template <int kRows, int kHead, int kOwn>
__device__ inline void start_dots(float (&s)[kRows / 8][4], const OwnRows<kOwn, kHead>& own,
                                  const PanelTile<kRows, kHead>& tile) {
  const SharedMatrix a(own.tile.data + own.row0 * kPanelCols), b(tile.data);
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k)
    start_product<kRows, false>(s, a + k / 4 * own.tile.kPanelBytes + k % 4 * 32,
                                b + k / 4 * tile.kPanelBytes + k % 4 * 32, k > 0);
}
/// Rounded sums as the first operand of another product. They are made before this returns: the
/// compiler may not make them between before_products() and the product.
template <int kWide>
__device__ inline Held<1, kWide / 2> operand_of(const WarpSums<1, kWide>& sums) {
  Held<1, kWide / 2> held = hold(sums);
#ifndef INKLING_EMULATED
#pragma unroll
  for (int k = 0; k < kWide / 2; ++k) {
    uint32_t(&x)[4] = held.x[0][k];
    asm volatile("" : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])::"memory");
  }
#endif
  return held;
}

/// Starts sums += weights tile.
template <int kRows, int kHead>
__device__ inline void start_rows_product(float (&sums)[kHead / 8][4],
                                          const Held<1, kRows / 16>& weights,
                                          const PanelTile<kRows, kHead>& tile) {
  const SharedMatrix b(tile.data, tile.kPanelBytes);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k)
    start_product<kHead, true>(sums, weights.x[0][k], b + k * 16 * kPanelCols * 2, true);
}

/// A queue of kStages places from the producer to the consumers.
template <int kStages>
struct Queue {
  PhaseBarrier full[kStages], free[kStages];

  __device__ void start() {
    for (int s = 0; s < kStages; ++s) {
      full[s].start(kWarpgroup);
      free[s].start(kConsumers * kWarpgroup / kWarp);
    }
  }
};
/// Makes queues ready, by all threads of a block.
template <class... Queues>
__device__ inline void start_queues(Queues&... queues) {
  if (threadIdx.x == 0) (queues.start(), ...);
  __syncthreads();
}
/// Tells the consumers of copies when they are complete. The latest stays untold while the next
/// are started, but not while the producer waits for a consumer, who may wait for it.
class Announcer {
 public:
  __device__ void add(PhaseBarrier& full) {
    end_copies();
    if (last_ != nullptr) announce<1>();
    last_ = &full;
  }
  __device__ void finish() {
    if (last_ != nullptr) announce<0>();
    last_ = nullptr;
  }

 private:
  template <int kLeft>
  __device__ void announce() {
    wait_for_copies<kLeft>();
    publish_to_products();
    last_->arrive();
  }
  PhaseBarrier* last_ = nullptr;
};

/// The position of one side in a queue.
template <int kStages>
struct Place {
  int stage = 0;
  unsigned parity = 0;  // of the phase that fills the stage

  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ void wait_full(Queue<kStages>& queue) const { queue.full[stage].wait(parity); }
  __device__ void wait_free(Queue<kStages>& queue, Announcer& announcer) const {
    if (queue.free[stage].ended(parity ^ 1)) return;
    announcer.finish();
    queue.free[stage].wait(parity ^ 1);
  }
  /// By all threads of a consumer, when they have read the stage.
  __device__ void release(Queue<kStages>& queue) {
    __syncwarp();
    if (lane_id() == 0) queue.free[stage].arrive();
    next();
  }
};

/// The units of work of a launch whose blocks stay until all is done. A unit is two tiles of a
/// head's queries, one that sees many keys and one that sees few, so that units take equal time.
struct Units {
  int heads, tiles, pairs;  // tiles and pairs of a head

  Units(int heads_, int rows, int tile)
      : heads(heads_), tiles(static_cast<int>(blocks_for(rows, tile))), pairs((tiles + 1) / 2) {}
  int64_t blocks() const { return std::min<int64_t>(int64_t{heads} * pairs, multiprocessors()); }
  /// f(head, tile) for this block's share.
  template <class F>
  __device__ void each(F&& f) const {
    for (int unit = static_cast<int>(blockIdx.x); unit < heads * pairs;
         unit += static_cast<int>(gridDim.x)) {
      const int head = unit / pairs, low = unit - head * pairs, high = tiles - 1 - low;
      f(head, high);
      if (low != high) f(head, low);
    }
  }
};

/// Runs the two parts of a block. Registers of a thread move from producers to consumers, who would
/// wait for ever for more than the block started with: 65,536, in eights for each thread.
template <int kFew, int kMany, class Produce, class Consume>
__device__ inline void specialise(Produce&& produce, Consume&& consume) {
  static_assert(kFew >= 24 && kMany <= 256 && kFew % 8 == 0 && kMany % 8 == 0);
  static_assert(kFew + kConsumers * kMany <= (1 + kConsumers) * (65536 / kSpecialised / 8 * 8));
  if (threadIdx.x < kWarpgroup) {
    set_registers<kFew, false>();
    produce();
  } else {
    set_registers<kMany, true>();
    consume();
  }
}

/// The producer of kernels that collect for tiles of kQueries queries: start_queries(head, i0)
/// starts what the kernel needs of them, and tiles of kKeys keys and values follow.
template <int kQueries, int kKeys, int kStages, class Shared, class F>
__device__ inline void produce_keys(Shared& shared, const MmaProblem& problem, const Units& units,
                                    F&& start_queries) {
  const auto& size = problem.size;
  Announcer announcer;
  Place<1> query;
  Place<kStages> place;
  units.each([&](int head, int tile) {
    const int i0 = tile * kQueries;
    const Span keys = size.keys_of(i0, kQueries, kKeys);
    const Matrix<const bfloat16> k = problem.k[head / size.group], v = problem.v[head / size.group];
    query.wait_free(shared.queries, announcer);
    start_queries(head, i0);
    announcer.add(shared.queries.full[0]);
    query.next();
    for (int j0 = keys.first; j0 < keys.end; j0 += kKeys, place.next()) {
      place.wait_free(shared.keys, announcer);
      shared.k[place.stage].start_copy(k, j0, keys.end, size.d);
      announcer.add(shared.keys.full[place.stage]);
      place.wait_free(shared.values, announcer);
      shared.v[place.stage].start_copy(v, j0, keys.end, size.dv);
      announcer.add(shared.values.full[place.stage]);
    }
  });
  announcer.finish();
}

/// Calls f.operator()<kHead, kDrop>().
template <class F>
void for_wgmma(const MmaProblem& problem, F&& f) {
  for_bool(std::max(problem.size.d, problem.size.dv) > 64, [&](auto wide) {
    for_bool(problem.dropout.on,
             [&](auto drop) { f.template operator()<wide() ? 128 : 64, drop()>(); });
  });
}

}  // namespace ink::cuda
