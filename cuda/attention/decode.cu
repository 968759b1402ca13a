// Attention of few queries to many keys (the formula: forward.cu), as when a model writes text
// token by token. The time goes into reading keys and values once, and a block for each head would
// leave most of a GPU idle. So a block takes one query and 128 of its keys, and the last block of a
// query joins its parts in their order. Dao et al. 2023, "Flash-Decoding".
#include "cuda/attention/suited.h"

#include <algorithm>

#include "cuda/attention/attention.cuh"

namespace ink::cuda {
namespace {

constexpr int kMostQueries = 4, kFewestKeys = 65, kWidest = 256;
constexpr int kKeys = 128;  // of a block, and its threads

/// A query's softmax over some keys: the largest score, the sum of the weights exp(s - top), and
/// the sums of weights times values.
template <class C>
struct Parts {
  C* data;  // (queries of all heads, chunks of keys, 2 + dv)
  int chunks, dv;

  __device__ C* at(int64_t row, int chunk) const {
    return data + (row * chunks + chunk) * (2 + dv);
  }
};

/// The result, and the log-sum-exp for the backward pass. A query that sees nothing has zeros and
/// -inf.
template <class T>
struct DecodeResult {
  using C = compute_t<T>;
  HeadMatrices<T> out;
  C* lse;
  int queries;

  __device__ void put(int64_t row, int c, C sum, C total) const {
    const int head = static_cast<int>(row / queries);
    out[head].at(static_cast<int>(row % queries), c) = T(total == 0 ? C(0) : sum / total);
  }
  __device__ void put_lse(int64_t row, C top, C total) const { lse[row] = top + simd::log(total); }
};

// Eight lanes take a key, N elements of it at a time, kPieces times.
template <class T, int N, int kPieces>
struct DecodePart {
  static constexpr int kThreads = kKeys, kLanes = 8, kSlots = kThreads / kLanes;
  static constexpr int kRounds = kKeys / kSlots;
  static constexpr int kAhead = kPieces < kRounds ? kRounds / kPieces : 1;  // keys read at once
  using C = compute_t<T>;
  struct Shared {
    BlockScratch<C> scratch;
    bool last;
    C weights[kKeys];  // or scores
    alignas(16) C q[kLanes * N * kPieces], sums[kSlots][kLanes * N * kPieces];
  };
  AttentionProblem<T> problem;
  DecodeResult<T> result;
  Parts<C> parts;
  int first_row;
  unsigned* arrived = block_counts();  // by row of the launch

  __device__ void operator()(Shared& shared) const {
    const auto& size = problem.size;
    const int chunk = static_cast<int>(blockIdx.x) % parts.chunks;
    const int place = static_cast<int>(blockIdx.x) / parts.chunks, row = first_row + place;
    const int head = row / size.queries, i = row % size.queries,
              j0 = size.first_seen(0) + chunk * kKeys;
    const int seen = size.seen(i) - j0, count = seen < kKeys ? seen : kKeys;
    const int own = static_cast<int>(threadIdx.x);  // the thread's key, and its columns
    const Matrix<const T> q = problem.q[head];
    for (int c = own; c < kLanes * N * kPieces; c += kThreads)
      shared.q[c] = c < size.d ? static_cast<C>(q.at(i, c)) : C(0);
    __syncthreads();
    find_scores(shared, head, i, j0, count);
    __syncthreads();
    const C score = size.sees(i, j0 + own) ? shared.weights[own] : -infinity<C>();
    const C top = block_max<kThreads>(score, shared.scratch);
    const C weight = score == -infinity<C>() ? C(0) : simd::exp_nonpositive(score - top);
    const C total = block_sum<kThreads>(weight, shared.scratch);
    shared.weights[own] = weight;
    __syncthreads();
    add_values(shared, head, j0, count);
    __syncthreads();
    for (int c = own; c < size.dv; c += kThreads) {
      C sum = 0;
      for (int slot = 0; slot < kSlots; ++slot) sum += shared.sums[slot][c];
      if (parts.chunks == 1) {
        result.put(row, c, sum, total);
      } else {
        parts.at(row, chunk)[2 + c] = sum;
      }
    }
    if (parts.chunks == 1) {
      if (own == 0) result.put_lse(row, top, total);
      return;
    }
    if (own == 0) {
      parts.at(row, chunk)[0] = top;
      parts.at(row, chunk)[1] = total;
    }
    if (is_last_block(arrived + place, static_cast<unsigned>(parts.chunks), shared.last)) join(row);
  }

 private:
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ static int column(int piece) {
    return (piece * kLanes + static_cast<int>(threadIdx.x) % kLanes) * N;
  }

  // The scores of keys j0 ... j0 + count - 1.
  __device__ void find_scores(Shared& shared, int head, int i, int j0, int count) const {
    const Matrix<const T> k = problem.k[head / problem.size.group];
    const int64_t mask_start = problem.mask.start(head);
#pragma unroll kAhead
    for (int first = 0; first < count; first += kSlots) {
      const int j = first + slot();
      C dot = 0;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (j < count && column(p) < problem.size.d)
          dot += sum(load<N>(&k.at(j0 + j, column(p))) * load<N>(shared.q + column(p)));
      }
      dot = warp_reduce<Plus, kLanes>(dot);
      if (threadIdx.x % kLanes == 0 && j < count)
        shared.weights[j] = problem.mask.apply(dot * problem.scale, mask_start, i, j0 + j);
    }
  }
  // Each slot's sums of the values of its keys.
  __device__ void add_values(Shared& shared, int head, int j0, int count) const {
    const Matrix<const T> v = problem.v[head / problem.size.group];
    Pack<C, N> sums[kPieces] = {};
#pragma unroll kAhead
    for (int first = 0; first < count; first += kSlots) {
      const int j = first + slot();
      const C weight = shared.weights[j];
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (weight == 0 || column(p) >= problem.size.dv) continue;  // even if the value is NaN
        const auto times = [weight](C x, C sum) { return sum + weight * x; };
        sums[p] = zip(times, load<N>(&v.at(j0 + j, column(p))), sums[p]);
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) store(shared.sums[slot()] + column(p), sums[p]);
  }

  __device__ void join(int64_t row) const {
    C top = -infinity<C>(), total = 0;
    for (int n = 0; n < parts.chunks; ++n) top = Larger::join(top, parts.at(row, n)[0]);
    const auto share = [&](int n) {
      const C own = parts.at(row, n)[0];
      return own == -infinity<C>() ? C(0) : simd::exp_nonpositive(own - top);
    };
    for (int n = 0; n < parts.chunks; ++n) total += share(n) * parts.at(row, n)[1];
    for (int c = static_cast<int>(threadIdx.x); c < parts.dv; c += kThreads) {
      C sum = 0;
      for (int n = 0; n < parts.chunks; ++n) sum += share(n) * parts.at(row, n)[2 + c];
      result.put(row, c, sum, total);
    }
    if (threadIdx.x == 0) result.put_lse(row, top, total);
  }
};

template <class T, int N, int kPieces>
void run_parts(const AttentionProblem<T>& problem, const DecodeResult<T>& result,
               const Parts<compute_t<T>>& parts, int64_t rows) {
  for (int64_t first = 0; first < rows; first += kBlockCounts)
    launch("attention", std::min<int64_t>(kBlockCounts, rows - first) * parts.chunks,
           DecodePart<T, N, kPieces>{problem, result, parts, static_cast<int>(first)});
}

}  // namespace

bool suits_attention_decode(const AttentionInputs& in) {
  return in.q.size(-2) <= kMostQueries && in.v.size(-2) >= kFewestKeys &&
         std::max(in.q.size(-1), in.v.size(-1)) <= kWidest && in.rule.dropout_p == 0;
}

void attention_decode(Array& out, Array& lse, const AttentionInputs& in) {
  for_float("attention", in.q.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    constexpr int kPack = 16 / sizeof(T), kLanes = 8;
    const AttentionProblem<T> problem(in);
    const int64_t rows = lse.numel(),
                  chunks = blocks_for(problem.size.keys - problem.size.first_seen(0), kKeys);
    Array memory = Array::empty(Shape{chunks > 1 ? rows * chunks * (2 + problem.size.dv) : 0},
                                lse.dtype(), lse.device());
    const Parts<C> parts{memory.mutable_data<C>(), static_cast<int>(chunks), problem.size.dv};
    const DecodeResult<T> result{matrices_of<T>(out), lse.mutable_data<C>(), problem.size.queries};
    const int widest = std::max(problem.size.d, problem.size.dv);
    if (!problem.k.in_packs || !problem.v.in_packs) {
      run_parts<T, 1, kWidest / kLanes>(problem, result, parts, rows);
    } else if (widest <= 64) {
      run_parts<T, kPack, 64 / kLanes / kPack>(problem, result, parts, rows);
    } else if (widest <= 128) {
      run_parts<T, kPack, 128 / kLanes / kPack>(problem, result, parts, rows);
    } else {
      run_parts<T, kPack, kWidest / kLanes / kPack>(problem, result, parts, rows);
    }
  });
}

}  // namespace ink::cuda
