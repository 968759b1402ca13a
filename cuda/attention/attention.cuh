// The arguments of attention's kernels: the twin of autograd/ops/attention/mask.h and of the sizes
// in autograd/ops/attention/tiles.h.
#pragma once

#include <algorithm>
#include <cmath>

#include "autograd/kernels/attention.h"
#include "cuda/random.cuh"
#include "cuda/rows.cuh"

namespace ink::cuda {

/// Where each head's matrix lies; heads are numbered through all leading dimensions.
struct Heads {
  int dims = 0;
  unsigned sizes[Shape::kMaxDims];
  int64_t strides[Shape::kMaxDims];

  void add(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (dims > 0 && strides[dims - 1] == stride * size) {
      sizes[dims - 1] *= static_cast<unsigned>(size);
      strides[dims - 1] = stride;
    } else {
      sizes[dims] = static_cast<unsigned>(size);
      strides[dims++] = stride;
    }
  }
  __device__ int64_t operator[](unsigned head) const {
    int64_t offset = 0;
#pragma unroll 1
    for (int d = dims - 1; d >= 0; --d) {
      const unsigned rest = d == 0 ? 0 : head / sizes[d];
      offset += (head - rest * sizes[d]) * strides[d];
      head = rest;
    }
    return offset;
  }
};

/// A matrix of one head. E: T, or const T to read only.
template <class E>
struct Matrix {
  E* data;
  int64_t row, col;
  bool in_packs;  // are rows contiguous and aligned, so that packs of 16 bytes can be read?

  __device__ E& at(int i, int c) const { return data[i * row + c * col]; }
};

/// The matrices of a tensor that broadcasts to (..., rows, cols), one for each head.
template <class E>
struct HeadMatrices {
  E* data = nullptr;
  int64_t row = 0, col = 0;
  bool in_packs = false;
  Heads heads;

  HeadMatrices() = default;
  HeadMatrices(E* first, const Array& x, const Shape& shape) : data(first) {
    const auto stride = [&](int64_t d) {
      const int64_t at = d - shape.size() + x.dim();
      return at < 0 || x.shape()[at] == 1 ? 0 : x.strides()[at];
    };
    for (int64_t d = 0; d < shape.size() - 2; ++d) heads.add(shape[d], stride(d));
    row = stride(shape.size() - 2);
    col = stride(shape.size() - 1);
    constexpr int64_t kPack = 16 / sizeof(E);
    in_packs = col == 1 && row % kPack == 0 && shape.back() % kPack == 0 && are_aligned({data});
    for (int d = 0; d < heads.dims; ++d) in_packs &= heads.strides[d] % kPack == 0;
  }
  __device__ Matrix<E> operator[](int head) const {
    return {data + heads[static_cast<unsigned>(head)], row, col, in_packs};
  }
};
template <class T>
HeadMatrices<const T> matrices_of(const Array& x) {
  return {x.data<T>(), x, x.shape()};
}
template <class T>
HeadMatrices<T> matrices_of(Array& x) {
  return {x.mutable_data<T>(), x, x.shape()};
}

/// The number of matrices in a tensor (..., rows, cols).
inline int64_t head_count(const Array& x) {
  Shape leading = x.shape();
  leading[x.dim() - 1] = leading[x.dim() - 2] = 1;
  return leading.numel();
}

/// Rows first .. end - 1; none if first >= end.
struct Span {
  int first, end;

  __device__ int tiles(int rows) const { return first < end ? (end - first - 1) / rows + 1 : 0; }
};

/// The problem's sizes. `heads` counts the queries' heads; each `group` consecutive heads share a
/// head of keys and values. Query i sees keys i + edge .. i + diagonal, of those that there are.
struct AttentionSizes {
  int heads, group, queries, keys, d, dv, diagonal, edge;

  AttentionSizes(const Array& q, const Array& k, const Array& v, const AttentionRule& rule)
      : heads(small(head_count(q))),
        group(heads > 0 ? heads / small(head_count(k)) : 1),
        queries(small(q.size(-2))),
        keys(small(k.size(-2))),
        d(small(q.size(-1))),
        dv(small(v.size(-1))),
        diagonal(static_cast<int>(std::clamp<int64_t>(rule.diagonal, -queries, keys))),
        edge(rule.window > 0 && rule.window <= queries + diagonal
                 ? diagonal + 1 - static_cast<int>(rule.window)
                 : -queries) {}

  /// Query i sees keys first_seen(i) .. seen(i) - 1.
  __host__ __device__ int first_seen(int i) const { return i + edge < 0 ? 0 : i + edge; }
  __device__ int seen(int i) const {
    const int end = i + diagonal + 1;
    return end < 0 ? 0 : end < keys ? end : keys;
  }
  __device__ bool sees(int i, int j) const { return i < queries && j < seen(i) && j >= i + edge; }
  /// Does each of `rows` queries from i on see all of n keys from j on?
  __device__ bool all_see(int i, int rows, int j, int n) const {
    return j + n <= seen(i) && j >= i + rows - 1 + edge;
  }
  /// The keys that `rows` queries from i on see together, from the first of a tile of n on.
  __device__ Span keys_of(int i, int rows, int n) const {
    if (i >= queries) return {0, 0};
    return {first_seen(i) / n * n, seen((i + rows < queries ? i + rows : queries) - 1)};
  }
  /// The queries that see any of n keys from j on.
  __device__ Span queries_of(int j, int n) const {
    const int end = j + n - edge;
    return {j < diagonal ? 0 : j - diagonal, end < queries ? end : queries};
  }

 private:
  static int small(int64_t size) {
    INK_CHECK(size < 1 << 30, "scaled_dot_product_attention: expected sizes below 2^30, got ",
              size);
    return static_cast<int>(size);
  }
};

/// attn_mask: bools, or numbers that are added, or no mask.
template <class C>
struct AttentionMask {
  HeadMatrices<const bool> allowed;
  HeadMatrices<const C> bias;

  AttentionMask(const Array& mask, const Shape& scores) {
    if (!mask.defined()) return;
    if (mask.dtype() == DType::boolean) {
      allowed = {mask.data<bool>(), mask, scores};
    } else {
      bias = {mask.data<C>(), mask, scores};
    }
  }
  __host__ __device__ bool given() const { return allowed.data || bias.data; }
  /// Where a head's matrix starts.
  __device__ int64_t start(int head) const {
    return allowed.data ? allowed.heads[static_cast<unsigned>(head)]
                        : bias.heads[static_cast<unsigned>(head)];
  }
  /// A score with the mask; -inf where i may not see j, even if the score was NaN.
  __device__ C apply(C score, int64_t start, int i, int j) const {
    if (allowed.data)
      return allowed.data[start + i * allowed.row + j * allowed.col] ? score : -infinity<C>();
    if (!bias.data) return score;
    const C b = bias.data[start + i * bias.row + j * bias.col];
    return b == -infinity<C>() ? b : score + b;
  }
};

/// Drops the same weights as dropout(weights, p) would.
struct WeightDropout {
  bool on;
  uint32_t threshold;
  double kept;  // the factor of weights that are not dropped
  Draws draws;
  int64_t queries, keys, first;

  WeightDropout(const AttentionRule& rule, const AttentionSizes& size, int64_t rows)
      : on(rule.dropout_p > 0),
        threshold(static_cast<uint32_t>(std::ceil(rule.dropout_p * 0x1p24))),
        kept(rule.dropout_p < 1 ? 1 / (1 - rule.dropout_p) : 0),
        draws(rule.random),
        queries(size.queries),
        keys(size.keys),
        first(first_of_batch(rule.random, size.heads * queries * keys, rows)) {}

  /// The key of all draws of this launch.
  __device__ uint64_t key() const { return draws.key(); }
  /// The index in the whole batch of the weight of query i and key j.
  __device__ uint64_t element(int head, int i, int j) const {
    return static_cast<uint64_t>(first + (head * queries + i) * keys + j);
  }
  /// Which of elements 4 counter ... 4 counter + 3 stay: a bit for each.
  __device__ unsigned four(uint64_t key, uint64_t counter) const {
    const auto words = Philox::at(key, counter, draws.at.call);
    unsigned bits = 0;
    for (unsigned k = 0; k < 4; ++k) bits |= unsigned{words[k] >> 8 >= threshold} << k;
    return bits;
  }
  /// Which of the four elements from `element` on stay.
  __device__ unsigned four_from(uint64_t key, uint64_t element) const {
    const unsigned skipped = element % 4;
    unsigned bits = four(key, element / 4);
    if (skipped) bits |= four(key, element / 4 + 1) << 4;
    return bits >> skipped & 15;
  }
};

/// All arguments of the kernels except those that they write.
template <class T, class Rows = HeadMatrices<const T>>
struct AttentionProblem {
  using C = compute_t<T>;
  AttentionSizes size;
  C scale;
  Rows q, k, v;
  AttentionMask<C> mask;
  WeightDropout dropout;

  explicit AttentionProblem(const AttentionInputs& in)
      : size(in.q, in.k, in.v, in.rule),
        scale(static_cast<C>(in.rule.scale)),
        q(matrices_of<T>(in.q)),
        k(matrices_of<T>(in.k)),
        v(matrices_of<T>(in.v)),
        mask(in.mask, in.scores_shape()),
        dropout(in.rule, size, in.q.size(0)) {}

  /// The score of query i and key j from their product; -inf where i does not see j. mask_start:
  /// where the head's mask starts.
  __device__ C score(C dot, int64_t mask_start, int i, int j) const {
    if (!size.sees(i, j)) return -infinity<C>();
    return mask.apply(dot * scale, mask_start, i, j);
  }
  __device__ bool sees(int64_t mask_start, int i, int j) const {
    return score(0, mask_start, i, j) != -infinity<C>();
  }
};

/// Calls kernel.run<false>(shared), which returns false if the result is not finite. Then comes
/// kernel.run<true>(shared), which is careful: what is infinite or NaN reaches only those who see
/// it.
template <class Kernel, class Shared>
[[gnu::noinline]] __device__ void run_carefully(const Kernel& kernel, Shared& shared) {
  kernel.template run<true>(shared);
}
template <class Kernel, class Shared>
__device__ inline void run_with_care(const Kernel& kernel, Shared& shared) {
  if (!kernel.template run<false>(shared)) run_carefully(kernel, shared);
}

}  // namespace ink::cuda
