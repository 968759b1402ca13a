// What the backward kernels on tensor cores share (mma_backward.cu, wgmma_backward.cu).
#pragma once

#include "cuda/attention/mma.cuh"

namespace ink::cuda {

/// The saved numbers of a query's softmax: the logarithm of its sum (to base 2 without a mask;
/// infinite if the query saw nothing, so that all its weights are 0), and delta.
struct alignas(8) QueryRow {
  float lse, delta;
};

struct BackwardProblem : MmaProblem {
  HeadRows<const bfloat16> dout;
  QueryRow* rows;  // (heads, T)

  template <bool kMask>
  __device__ float weight(float score, float lse) const {
    return exp2_fast(kMask ? kLog2e * (score - lse) : scale * kLog2e * score - lse);
  }
};

void attention_wgmma_backward(AttentionGradients& d, const BackwardProblem& problem,
                              const Array& out, const Array& lse);

/// Computes delta of a warp's queries first ... first + 15, reads lse, and writes both to
/// problem.rows. rows: of queries g and g + 8.
template <bool kMask, int kDeep>
__device__ inline void find_rows(QueryRow (&rows)[2], const BackwardProblem& problem,
                                 const float* lse, int head, int first, const Held<1, kDeep>& dout,
                                 const Held<1, kDeep>& out) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    QueryRow& row = rows[h];
    row = {0, 0};
#pragma unroll
    for (int n = 0; n < 2 * kDeep; ++n) {
      const uint32_t a = dout.x[0][n / 2][n % 2 * 2 + h], b = out.x[0][n / 2][n % 2 * 2 + h];
      row.delta += first_of(a) * first_of(b) + second_of(a) * second_of(b);
    }
    row.delta += warp_xor(row.delta, 1);
    row.delta += warp_xor(row.delta, 2);
    const int i = first + 8 * h + lane_id() / 4;
    if (i >= problem.size.queries) continue;
    const int64_t at = int64_t{head} * problem.size.queries + i;
    row.lse = lse[at] == -infinity<float>() ? infinity<float>() : lse[at] * (kMask ? 1 : kLog2e);
    if (lane_id() % 4 == 0) problem.rows[at] = row;
  }
}

/// Weights of 16 keys, without those that are dropped. kept: bit 4 n + c for x[0][n][c].
template <bool kDrop, int kWide>
__device__ inline WarpSums<1, kWide> dropped(WarpSums<1, kWide> p, uint32_t kept) {
#pragma unroll
  for (int n = 0; n < 4 * kWide; ++n) {
    if (kDrop && !(kept >> n & 1)) p.x[0][n / 4][n % 4] = 0;
  }
  return p;
}

}  // namespace ink::cuda
