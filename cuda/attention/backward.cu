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

#include "cuda/attention/suited.h"
#include "cuda/attention/tiles.cuh"

namespace ink::cuda {
namespace {

/// All arguments of the kernels below except those that they write.
template <class T>
struct BackwardProblem : AttentionProblem<T> {
  using C = compute_t<T>;
  HeadMatrices<const T> dout, out;
  const C* lse;  // (heads, queries)
};

/// The saved numbers of the softmax of up to kOther queries.
template <class C>
struct QueryRows {
  C lse[kOther], delta[kOther];

  /// Those of kRows queries from i0 on; zeros beyond the last. Each block computes the deltas that
  /// it needs: one product of rows beside the 128 of its tiles.
  template <int kRows, class T>
  __device__ void find(const BackwardProblem<T>& problem, int head, int i0) {
    constexpr int kLanes = kTileThreads / kRows;  // of a row
    const int row = static_cast<int>(threadIdx.x) / kLanes, i = i0 + row;
    const Matrix<const T> o = problem.out[head], g = problem.dout[head];
    const int cols = i < problem.size.queries ? problem.size.dv : 0;
    const C sum = o.in_packs && g.in_packs ? dot<16 / sizeof(T), kLanes>(o, g, i, cols)
                                           : dot<1, kLanes>(o, g, i, cols);
    __syncthreads();  // the memory may still be read
    if (threadIdx.x % kLanes == 0) {
      delta[row] = sum;
      lse[row] =
          i < problem.size.queries ? problem.lse[int64_t{head} * problem.size.queries + i] : C(0);
    }
    __syncthreads();
  }

 private:
  // The product of rows i of two matrices, by kLanes threads, N columns at a time.
  template <int N, int kLanes, class T>
  __device__ static C dot(const Matrix<const T>& a, const Matrix<const T>& b, int i, int cols) {
    Pack<C, N> total{};
    for (int c = static_cast<int>(threadIdx.x) % kLanes * N; c < cols; c += kLanes * N)
      total = total + load<N>(&a.at(i, c)) * load<N>(&b.at(i, c));
    return warp_reduce<Plus, kLanes>(sum(total));
  }
};

/// s: q_i . k_j, becomes m_ij p_ij; dp: dout_i . v_j, becomes ds_ij.
template <class T, class C>
__device__ inline void turn(C& s, C& dp, const Sight<T>& sight, C lse, C delta, C m, int i, int j) {
  const C score = sight.score(s, i, j);
  const bool sees = score != -infinity<C>();
  const C p = sees ? simd::exp_nonpositive(score - lse) : C(0);
  s = p * m;
  dp = sees ? p * (m * dp - delta) : C(0);
}

/// For a block that owns queries: computes s and dp of its tile and the keys from j0 on, turned.
template <class T, int kWidth>
__device__ inline void turn_tile(Square<compute_t<T>>& s, Square<compute_t<T>>& dp,
                                 Tiles<T, kWidth>& tiles, const QueryRows<compute_t<T>>& of_queries,
                                 const BackwardProblem<T>& problem, const Sight<T>& sight, int i0,
                                 int j0) {
  using C = compute_t<T>;
  const auto& size = problem.size;
  const int head = sight.head, kv_head = head / size.group;
  const int rows = rows_of_tile(i0, size.queries, kOwn), n = rows_of_tile(j0, size.keys, kOther);
  tiles.dots(s, {problem.q[head], i0, rows}, {problem.k[kv_head], j0, n}, size.d);
  tiles.dots(dp, {problem.dout[head], i0, rows}, {problem.v[kv_head], j0, n}, size.dv);
  const int own = own_group() * kSquare, i = i0 + own, j = other_group() * kSquare;
  const unsigned kept = sight.kept(i, j0 + j);
#pragma unroll
  for (int r = 0; r < kSquare; ++r) {
    const C lse = of_queries.lse[own + r], delta = of_queries.delta[own + r];
#pragma unroll
    for (int c = 0; c < kSquare; ++c) {
      const C m = kept >> (kSquare * r + c) & 1 ? sight.factor : C(0);
      turn(s.x[r][c], dp.x[r][c], sight, lse, delta, m, i + r, j0 + j + c);
    }
  }
}

template <class T, int kWidth>
struct AttentionBackward {
  using C = compute_t<T>;
  static constexpr int kThreads = kTileThreads, kResident = sizeof(C) * kWidth > 256 ? 2 : 3;
  using Sums = typename Tiles<T, kWidth>::Sums;
  struct Shared {
    Tiles<T, kWidth> tiles;
    QueryRows<C> of_queries;
    BlockScratch<int> scratch;
  };
  BackwardProblem<T> problem;
  HeadMatrices<T> dq, dk, dv;
  unsigned query_tiles, key_tiles;  // of a head

  // Blocks: tiles of keys, then tiles of queries, the longest causal ones first; slices of columns.
  __device__ void operator()(Shared& shared) const { run_with_care(*this, shared); }
  template <bool kCareful>
  __device__ bool run(Shared& shared) const {
    const unsigned key_blocks = problem.size.heads / problem.size.group * key_tiles;
    return blockIdx.x < key_blocks ? keys<kCareful>(shared, blockIdx.x)
                                   : queries<kCareful>(shared, blockIdx.x - key_blocks);
  }

 private:
  template <bool kCareful>
  __device__ bool queries(Shared& shared, unsigned block) const {
    const auto& size = problem.size;
    const int head = block / query_tiles;
    const int i0 = (query_tiles - 1 - block % query_tiles) * kOwn, col = blockIdx.y * kWidth;
    if (col >= size.d) return true;
    const int rows = rows_of_tile(i0, size.queries, kOwn);
    const Matrix<const T> k = problem.k[head / size.group];
    const Sight<T> sight(problem, head);
    const Span seen = size.keys_of(i0, kOwn, kOther);
    shared.of_queries.template find<kOwn>(problem, head, i0);
    Sums sums;
    for (int j0 = seen.first; j0 < seen.end; j0 += kOther) {
      Square<C> s, ds;
      turn_tile(s, ds, shared.tiles, shared.of_queries, problem, sight, i0, j0);
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

  template <bool kCareful>
  __device__ bool keys(Shared& shared, unsigned block) const {
    const auto& size = problem.size;
    const int kv_head = block / key_tiles, j0 = block % key_tiles * kOwn;
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
        shared.of_queries.template find<kOther>(problem, head, i0);
        Square<C> s, dp;
        shared.tiles.dots(s, k, q, size.d);
        shared.tiles.dots(dp, v, dout, size.dv);
        turn_squares(s, dp, shared.of_queries, sight, i0, j0);
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
  __device__ static void turn_squares(Square<C>& s, Square<C>& dp, const QueryRows<C>& of_queries,
                                      const Sight<T>& sight, int i0, int j0) {
    const int other = other_group() * kSquare, i = i0 + other, j = j0 + own_group() * kSquare;
    const unsigned kept = sight.kept(i, j);
#pragma unroll
    for (int c = 0; c < kSquare; ++c) {
      const C lse = of_queries.lse[other + c], delta = of_queries.delta[other + c];
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
        const C m = kept >> (kSquare * c + r) & 1 ? sight.factor : C(0);
        turn(s.x[r][c], dp.x[r][c], sight, lse, delta, m, i + c, j + r);
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
    QueryRows<C> of_queries;
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
        shared.of_queries.template find<kOwn>(problem, sight.head, i0);
        for (int j0 = j_first; j0 < seen.end; j0 += j_step) {
          if (j0 < seen.first) continue;
          Square<C> s, ds;
          turn_tile(s, ds, shared.tiles, shared.of_queries, problem, sight, i0, j0);
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
void run_backward(AttentionGradients& d, const BackwardProblem<T>& problem) {
  const auto& size = problem.size;
  const int64_t query_tiles = blocks_for(size.queries, kOwn),
                key_tiles = blocks_for(size.keys, kOwn);
  launch("attention_backward",
         {size.heads / size.group * key_tiles + size.heads * query_tiles,
          blocks_for(std::max(size.d, size.dv), kWidth)},
         AttentionBackward<T, kWidth>{problem, matrices_of<T>(d.dq), matrices_of<T>(d.dk),
                                      matrices_of<T>(d.dv), static_cast<unsigned>(query_tiles),
                                      static_cast<unsigned>(key_tiles)});
}

}  // namespace

void attention_backward(AttentionGradients d, const Array& dout, const Array& out, const Array& lse,
                        const AttentionInputs& in) {
  const Array &q = in.q, &k = in.k, &v = in.v;
  if (!d.dmask.defined() &&
      suits_attention_mma(in.mask, in.rule, {&d.dq, &d.dk, &d.dv, &dout, &out, &q, &k, &v}))
    return attention_mma_backward(d, dout, out, lse, in);
  for_float("attention_backward", q.dtype(), [&]<class T>(T) {
    const BackwardProblem<T> problem{AttentionProblem<T>(in), matrices_of<T>(dout),
                                     matrices_of<T>(out), lse.data<compute_t<T>>()};
    if (!std::is_same_v<T, double> && std::max(q.size(-1), v.size(-1)) > 64) {
      run_backward<T, std::is_same_v<T, double> ? 64 : 128>(d, problem);
    } else {
      run_backward<T, 64>(d, problem);
    }
    if (d.dmask.defined()) run_mask_gradient(d.dmask, problem, in.scores_shape());
  });
}

}  // namespace ink::cuda
