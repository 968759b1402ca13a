// Scaled dot-product attention, forward: the twin of autograd/ops/attention/forward.cpp.
//   s_ij  = scale q_i . k_j + mask_ij
//   p_ij  = softmax over j of s_ij
//   out_i = sum_j m_ij p_ij v_j
// A block takes a tile of queries and loops over tiles of keys, with running maxima and sums of its
// softmax. Dao et al. 2022, algorithm 1.
#include <limits>
#include <type_traits>

#include "cuda/attention/suited.h"
#include "cuda/attention/tiles.cuh"

namespace ink::cuda {
namespace {

/// The softmax of a thread's four rows so far.
template <class C>
struct Softmax {
  C top[kSquare], total[kSquare];  // the largest score; the sum of this thread's weights

  __device__ Softmax() {
    for (int r = 0; r < kSquare; ++r) {
      top[r] = -infinity<C>();
      total[r] = 0;
    }
  }
  /// Scores to weights, in place: exp(s - top). shrink: the factor for sums over earlier keys.
  __device__ void add(Square<C>& s, C (&shrink)[kSquare]) {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      C high = top[r];
#pragma unroll
      for (const C x : s.x[r]) high = x > high ? x : high;
      high = warp_reduce<Larger, kAlongOther>(high);
      const C base = high == -infinity<C>() ? C(0) : high;  // -inf - -inf would be NaN
      shrink[r] = simd::exp_nonpositive(top[r] - base);
      top[r] = high;
      C sum = 0;
#pragma unroll
      for (C& x : s.x[r]) sum += x = simd::exp_nonpositive(x - base);
      total[r] = total[r] * shrink[r] + sum;
    }
  }
};

template <class T, int kWidth>
struct AttentionForward {
  using C = compute_t<T>;
  static constexpr int kThreads = kTileThreads, kResident = sizeof(C) == 8 ? 2 : 3;
  using Sums = typename Tiles<T, kWidth>::Sums;
  struct Shared {
    Tiles<T, kWidth> tiles;
    BlockScratch<int> scratch;
  };
  AttentionProblem<T> problem;
  HeadMatrices<T> out;
  C* lse;
  unsigned tiles;  // of a head's queries

  // Blocks: tiles of queries, the longest causal ones of a head first; slices of out's columns.
  __device__ void operator()(Shared& shared) const { run_with_care(*this, shared); }
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const int head = blockIdx.x / tiles, kv_head = head / size.group;
    const int i0 = (tiles - 1 - blockIdx.x % tiles) * kOwn, col = blockIdx.y * kWidth;
    const int rows = rows_of_tile(i0, size.queries, kOwn);
    const Rows<T> q{problem.q[head], i0, rows};
    const Matrix<const T> k = problem.k[kv_head], v = problem.v[kv_head];
    const Sight<T> sight(problem, head);
    const Span keys = size.keys_of(i0, kOwn, kOther);
    Softmax<C> softmax;
    Sums sums;
    for (int j0 = keys.first; j0 < keys.end; j0 += kOther) {
      const int n = rows_of_tile(j0, keys.end, kOther);
      Square<C> s;
      shared.tiles.dots(s, q, {k, j0, n}, size.d);
      look(s, sight, i0, j0);
      C shrink[kSquare];
      softmax.add(s, shrink);
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
#pragma unroll
        for (C& x : sums.x[r]) x *= shrink[r];
      }
      if (problem.dropout.on) drop(s, sight, i0, j0);
      shared.tiles.put(s);
      const auto sees = [&](int i, int j) { return sight.sees(i0 + i, j0 + j); };
      shared.tiles.template add_rows<kCareful>(sums, {v, j0, n}, col, size.dv, sees);
    }
    if (!kCareful && block_max<kThreads>(int{!sums.finite()}, shared.scratch) != 0) return false;
    finish(head, i0, rows, col, softmax, sums);
    return true;
  }

 private:
  // Turns dot products into scores.
  __device__ static void look(Square<C>& s, const Sight<T>& sight, int i0, int j0) {
    const int i = i0 + own_group() * kSquare, j = other_group() * kSquare;
#pragma unroll
    for (int e = 0; e < kSquare * kSquare; ++e) {
      C& score = s.x[e / kSquare][e % kSquare];
      score = sight.score(score, i + e / kSquare, j0 + j + e % kSquare);
    }
  }
  __device__ static void drop(Square<C>& p, const Sight<T>& sight, int i0, int j0) {
    const unsigned kept = sight.kept(i0 + own_group() * kSquare, j0 + other_group() * kSquare);
#pragma unroll
    for (int e = 0; e < kSquare * kSquare; ++e)
      p.x[e / kSquare][e % kSquare] *= kept >> e & 1 ? sight.factor : C(0);
  }
  __device__ void finish(int head, int i0, int rows, int col, Softmax<C>& softmax,
                         Sums& sums) const {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const int i = own_group() * kSquare + r;
      C& total = softmax.total[r];
      total = warp_reduce<Plus, kAlongOther>(total);
      if (col == 0 && other_group() == 0 && i < rows)
        lse[int64_t{head} * problem.size.queries + i0 + i] = softmax.top[r] + simd::log(total);
      if (total == 0) total = 1;  // it saw nothing
    }
    Tiles<T, kWidth>::store(out[head], i0, rows, col, problem.size.dv, sums,
                            [&](int r) { return 1 / softmax.total[r]; });
  }
};

template <class T, int kWidth>
void run_forward(Array& out, Array& lse, const AttentionProblem<T>& problem) {
  const int64_t tiles = blocks_for(problem.size.queries, kOwn);
  launch("attention", {problem.size.heads * tiles, blocks_for(problem.size.dv, kWidth)},
         AttentionForward<T, kWidth>{problem, matrices_of<T>(out), lse.mutable_data<compute_t<T>>(),
                                     static_cast<unsigned>(tiles)});
}

}  // namespace

void attention(Array& out, Array& lse, const AttentionInputs& in) {
  if (out.numel() == 0 || in.k.size(-2) == 0) {
    fill(out, 0);
    return fill(lse, std::numeric_limits<double>::infinity());  // so that no weight counts
  }
  if (suits_attention_decode(in)) return attention_decode(out, lse, in);
  if (suits_attention_mma(in.mask, in.rule, {&out, &in.q, &in.k, &in.v}))
    return attention_mma(out, lse, in);
  for_float("attention", in.q.dtype(), [&]<class T>(T) {
    const AttentionProblem<T> problem(in);
    if constexpr (!std::is_same_v<T, double>) {
      if (in.v.size(-1) > 64) return run_forward<T, 128>(out, lse, problem);
    }
    run_forward<T, 64>(out, lse, problem);
  });
}

}  // namespace ink::cuda
