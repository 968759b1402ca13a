// Attention, backward: the twin of autograd/ops/attention/backward.cpp.
//   p_ij    = exp(s_ij - lse_i)
//   delta_i = dout_i . out_i
//   ds_ij   = p_ij (m_ij dout_i . v_j - delta_i)
//   dv_j    = sum_i m_ij p_ij dout_i
//   dq_i    = scale sum_j ds_ij k_j
//   dk_j    = scale sum_i ds_ij q_i
// No sum has terms from several blocks, so that every run gives the same bits. A block that owns
// queries collects their dq, one that owns keys their dk and dv, and one that owns a tile of the
// mask its dmask. Each computes the scores that it needs again. Dao et al. 2022, algorithm 4.
#include <algorithm>
#include <type_traits>

#include "cuda/attention/mma.h"
#include "cuda/attention/tiles.cuh"

namespace ink::cuda {
namespace {

/// All arguments of the kernels below except those that they write.
template <class T>
struct BackwardProblem : AttentionProblem<T> {
  using C = compute_t<T>;
  HeadMatrices<const T> dout;
  const C* lse;  // (heads, queries)
  C* delta;      // likewise; QueryGradient, the first, fills it
};

/// The saved numbers of one query's softmax.
template <class C>
struct QueryRow {
  C lse = 0, delta = 0;
};
template <class T>
__device__ inline QueryRow<compute_t<T>> query_row(const BackwardProblem<T>& problem, int head,
                                                   int i) {
  const int64_t queries = problem.size.queries;
  if (i >= queries) return {};
  return {problem.lse[head * queries + i], problem.delta[head * queries + i]};
}

/// s: q_i . k_j, becomes m_ij p_ij; dp: dout_i . v_j, becomes ds_ij.
template <class T, class C>
__device__ inline void turn(C& s, C& dp, const Sight<T>& sight, const QueryRow<C>& row, C m, int i,
                            int j) {
  const C score = sight.score(s, i, j);
  const bool sees = score != -infinity<C>();
  const C p = sees ? simd::exp_nonpositive(score - row.lse) : C(0);
  s = p * m;
  dp = sees ? p * (m * dp - row.delta) : C(0);
}

/// For a block that owns queries: computes s and dp of its tile and the keys from j0 on, turned.
template <class T, int kWidth>
__device__ inline void turn_tile(Square<compute_t<T>>& s, Square<compute_t<T>>& dp,
                                 Tiles<T, kWidth>& tiles, const BackwardProblem<T>& problem,
                                 const Sight<T>& sight, int i0, int j0) {
  using C = compute_t<T>;
  const auto& size = problem.size;
  const int head = sight.head, kv_head = head / size.group;
  const int rows = rows_of_tile(i0, size.queries, kOwn), n = rows_of_tile(j0, size.keys, kOther);
  tiles.dots(s, {problem.q[head], i0, rows}, {problem.k[kv_head], j0, n}, size.d);
  tiles.dots(dp, {problem.dout[head], i0, rows}, {problem.v[kv_head], j0, n}, size.dv);
  const int i = i0 + own_group() * kSquare, j = other_group() * kSquare;
  const unsigned kept = sight.kept(i, j0 + j);
#pragma unroll
  for (int r = 0; r < kSquare; ++r) {
    const QueryRow<C> row = query_row(problem, head, i + r);
#pragma unroll
    for (int c = 0; c < kSquare; ++c) {
      const C m = kept >> (kSquare * r + c) & 1 ? sight.factor : C(0);
      turn(s.x[r][c], dp.x[r][c], sight, row, m, i + r, j0 + j + c);
    }
  }
}

template <class T, int kWidth>
struct QueryGradient {
  using C = compute_t<T>;
  static constexpr int kThreads = kTileThreads, kResident = sizeof(C) == 8 ? 2 : 3;
  struct Shared {
    Tiles<T, kWidth> tiles;
    BlockScratch<int> scratch;
  };
  BackwardProblem<T> problem;
  HeadMatrices<const T> out;
  HeadMatrices<T> dq;
  unsigned tiles;  // of a head's queries

  __device__ void operator()(Shared& shared) const {
    if (!run<false>(shared)) run_carefully(shared);
  }

 private:
  [[gnu::noinline]] __device__ void run_carefully(Shared& shared) const { run<true>(shared); }

  // Returns false if the result is not finite. kCareful: may keys be infinite or NaN?
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const int head = blockIdx.x / tiles;
    const int i0 = (tiles - 1 - blockIdx.x % tiles) * kOwn, col = blockIdx.y * kWidth;
    const int rows = rows_of_tile(i0, size.queries, kOwn);
    const Matrix<const T> k = problem.k[head / size.group];
    const Sight<T> sight(problem, head);
    const Span seen = size.keys_of(i0, kOwn, kOther);
    find_delta(head, i0);
    __syncthreads();
    typename Tiles<T, kWidth>::Sums sums;
    for (int j0 = seen.first; j0 < seen.end; j0 += kOther) {
      Square<C> s, ds;
      turn_tile(s, ds, shared.tiles, problem, sight, i0, j0);
      shared.tiles.put(ds);
      const Rows<T> keys{k, j0, rows_of_tile(j0, seen.end, kOther)};
      const auto sees = [&](int i, int j) { return sight.sees(i0 + i, j0 + j); };
      shared.tiles.template add_rows<kCareful>(sums, keys, col, size.d, sees);
    }
    if (!kCareful && block_max<kThreads>(int{!sums.finite()}, shared.scratch) != 0) return false;
    Tiles<T, kWidth>::store(dq[head], i0, rows, col, size.d, sums,
                            [&](int) { return problem.scale; });
    return true;
  }

  // Computes delta of the block's queries. Blocks that share queries write the same numbers.
  __device__ void find_delta(int head, int i0) const {
    const Matrix<const T> o = out[head], g = problem.dout[head];
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const int i = i0 + own_group() * kSquare + r;
      const int cols = i < problem.size.queries ? problem.size.dv : 0;
      C sum = 0;
      for (int c = other_group(); c < cols; c += kAlongOther) sum += C(o.at(i, c)) * C(g.at(i, c));
      sum = along_other<Plus>(sum);
      if (other_group() == 0 && i < problem.size.queries)
        problem.delta[int64_t{head} * problem.size.queries + i] = sum;
    }
  }
};

template <class T, int kWidth>
struct KeyGradient {
  using C = compute_t<T>;
  static constexpr int kThreads = kTileThreads, kResident = sizeof(C) * kWidth > 256 ? 2 : 3;
  using Sums = typename Tiles<T, kWidth>::Sums;
  struct Shared {
    Tiles<T, kWidth> tiles;
    BlockScratch<int> scratch;
  };
  BackwardProblem<T> problem;
  HeadMatrices<T> dk, dv;
  unsigned tiles;  // of a head's keys

  __device__ void operator()(Shared& shared) const {
    if (!run<false>(shared)) run_carefully(shared);
  }

 private:
  [[gnu::noinline]] __device__ void run_carefully(Shared& shared) const { run<true>(shared); }

  // Returns false if the result is not finite. kCareful: may queries be infinite or NaN?
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const auto& size = problem.size;
    const int kv_head = blockIdx.x / tiles, j0 = blockIdx.x % tiles * kOwn;
    const int col = blockIdx.y * kWidth;
    const int rows = rows_of_tile(j0, size.keys, kOwn);
    const Rows<T> k{problem.k[kv_head], j0, rows}, v{problem.v[kv_head], j0, rows};
    const Span seen = size.queries_of(j0, kOwn);
    Sums dk_sums, dv_sums;
    for (int head = kv_head * size.group; head < (kv_head + 1) * size.group; ++head) {
      const Matrix<const T> q_head = problem.q[head], dout_head = problem.dout[head];
      const Sight<T> sight(problem, head);
      for (int i0 = seen.first; i0 < seen.end; i0 += kOther) {
        const int n = rows_of_tile(i0, seen.end, kOther);
        const Rows<T> q{q_head, i0, n}, dout{dout_head, i0, n};
        Square<C> s, dp;
        shared.tiles.dots(s, k, q, size.d);
        shared.tiles.dots(dp, v, dout, size.dv);
        turn_squares(s, dp, sight, i0, j0);
        const auto sees = [&](int j, int i) { return sight.sees(i0 + i, j0 + j); };
        shared.tiles.put(s);
        shared.tiles.template add_rows<kCareful>(dv_sums, dout, col, size.dv, sees);
        shared.tiles.put(dp);
        shared.tiles.template add_rows<kCareful>(dk_sums, q, col, size.d, sees);
      }
    }
    const bool finite = dk_sums.finite() && dv_sums.finite();
    if (!kCareful && block_max<kThreads>(int{!finite}, shared.scratch) != 0) return false;
    shared.tiles.store(dk[kv_head], j0, rows, col, size.d, dk_sums,
                       [&](int) { return problem.scale; });
    shared.tiles.store(dv[kv_head], j0, rows, col, size.dv, dv_sums, [](int) { return C(1); });
    return true;
  }

  // Own rows are keys, the others queries.
  __device__ void turn_squares(Square<C>& s, Square<C>& dp, const Sight<T>& sight, int i0,
                               int j0) const {
    const int i = i0 + other_group() * kSquare, j = j0 + own_group() * kSquare;
    const unsigned kept = sight.kept(i, j);
#pragma unroll
    for (int c = 0; c < kSquare; ++c) {
      const QueryRow<C> row = query_row(problem, sight.head, i + c);
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
        const C m = kept >> (kSquare * c + r) & 1 ? sight.factor : C(0);
        turn(s.x[r][c], dp.x[r][c], sight, row, m, i + c, j + r);
      }
    }
  }
};

/// Sums ds over all scores to which an element of the mask broadcasts. A block takes a tile of one
/// of the mask's matrices. If the mask has size 1 along queries or keys, the block loops over all
/// their tiles.
template <class T>
struct MaskGradient {
  static constexpr int kThreads = kTileThreads;
  using C = compute_t<T>;
  struct Shared {
    Tiles<T, 64> tiles;
  };
  BackwardProblem<T> problem;
  HeadMatrices<C> dmask;
  // The numbers of the heads that have matrices of their own, and of those that share one.
  Heads own, repeated;
  int repeats;
  int rows, cols;  // of a matrix of the mask: 1, or those of the scores

  __device__ void operator()(Shared& shared) const {
    const auto& size = problem.size;
    const int i_first = blockIdx.y * kOwn, j_first = blockIdx.z * kOther;
    // From one tile to the next. There is only one if the mask has that dimension.
    const int i_step = rows == 1 ? kOwn : size.queries, j_step = cols == 1 ? kOther : size.keys;
    const int first_head = static_cast<int>(own[blockIdx.x]);
    Square<C> sums;
    for (int n = 0; n < repeats; ++n) {
      const Sight<T> sight(problem, first_head + static_cast<int>(repeated[n]));
      for (int i0 = i_first; i0 < size.queries; i0 += i_step) {
        const Span seen = size.keys_of(i0, kOwn, kOther);
        for (int j0 = j_first; j0 < seen.end; j0 += j_step) {
          if (j0 < seen.first) continue;
          Square<C> s, ds;
          turn_tile(s, ds, shared.tiles, problem, sight, i0, j0);
#pragma unroll
          for (int e = 0; e < kSquare * kSquare; ++e)
            sums.x[e / kSquare][e % kSquare] += ds.x[e / kSquare][e % kSquare];
        }
      }
    }
    shared.tiles.put(sums);
    __syncthreads();
    const int height = rows == 1 ? 1 : rows_of_tile(i_first, rows, kOwn);
    const int width = cols == 1 ? 1 : rows_of_tile(j_first, cols, kOther);
    const Matrix<C> to = dmask[first_head];
    for (int e = static_cast<int>(threadIdx.x); e < height * width; e += kThreads)
      to.at(i_first + e / width, j_first + e % width) = total(shared.tiles, e / width, e % width);
  }

  // The sum for one element of the mask.
  __device__ C total(const Tiles<T, 64>& tiles, int row, int col) const {
    const int i_end = rows == 1 ? kOwn : row + 1, j_end = cols == 1 ? kOther : col + 1;
    C sum = 0;
    for (int i = row; i < i_end; ++i) {
      for (int j = col; j < j_end; ++j) sum += tiles.weights[i * tiles.kWeightRow + j];
    }
    return sum;
  }
};

template <class T>
void run_mask_gradient(Array& dmask, const BackwardProblem<T>& problem, const Shape& scores) {
  const int64_t dims = scores.size();
  const auto size_of = [&](int64_t d) {  // of the mask, in the scores' dimension d
    const int64_t at = d - dims + dmask.dim();
    return at < 0 ? 1 : dmask.shape()[at];
  };
  Heads own, repeated;
  int64_t matrices = 1, repeats = 1;
  for (int64_t d = 0; d < dims - 2; ++d) {
    int64_t stride = 1;
    for (int64_t later = d + 1; later < dims - 2; ++later) stride *= scores[later];
    const bool is_own = size_of(d) == scores[d];
    (is_own ? own : repeated).add(scores[d], stride);
    (is_own ? matrices : repeats) *= scores[d];
  }
  const int rows = static_cast<int>(size_of(dims - 2)), cols = static_cast<int>(size_of(dims - 1));
  launch("attention_backward", {matrices, blocks_for(rows, kOwn), blocks_for(cols, kOther)},
         MaskGradient<T>{problem,
                         {dmask.mutable_data<compute_t<T>>(), dmask, scores},
                         own,
                         repeated,
                         static_cast<int>(repeats),
                         rows,
                         cols});
}

template <class T, int kWidth>
void run_backward(AttentionGradients& d, const Array& out, const BackwardProblem<T>& problem) {
  const auto& size = problem.size;
  const auto query_tiles = static_cast<unsigned>(blocks_for(size.queries, kOwn));
  const auto key_tiles = static_cast<unsigned>(blocks_for(size.keys, kOwn));
  launch("attention_backward",
         {int64_t{size.heads} * query_tiles, blocks_for(std::max(size.d, 1), kWidth)},
         QueryGradient<T, kWidth>{problem, matrices_of<T>(out), matrices_of<T>(d.dq), query_tiles});
  launch(
      "attention_backward",
      {int64_t{size.heads / size.group} * key_tiles, blocks_for(std::max(size.d, size.dv), kWidth)},
      KeyGradient<T, kWidth>{problem, matrices_of<T>(d.dk), matrices_of<T>(d.dv), key_tiles});
}

}  // namespace

void attention_backward(AttentionGradients d, const Array& dout, const Array& out, const Array& lse,
                        const AttentionInputs& in) {
  const Array &q = in.q, &k = in.k, &v = in.v;
  if (!d.dmask.defined() &&
      suits_attention_mma(in.mask, in.rule, {&d.dq, &d.dk, &d.dv, &dout, &out, &q, &k, &v}))
    return attention_mma_backward(d, dout, out, lse, in);
  for_float("attention_backward", q.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    Array delta = Array::empty(lse.shape(), lse.dtype(), lse.device());
    const BackwardProblem<T> problem{AttentionProblem<T>(in), matrices_of<T>(dout), lse.data<C>(),
                                     delta.mutable_data<C>()};
    if (!std::is_same_v<T, double> && std::max(q.size(-1), v.size(-1)) > 64) {
      run_backward<T, std::is_same_v<T, double> ? 64 : 128>(d, out, problem);
    } else {
      run_backward<T, 64>(d, out, problem);
    }
    if (d.dmask.defined()) run_mask_gradient(d.dmask, problem, in.scores_shape());
  });
}

}  // namespace ink::cuda
