#include "autograd/ops/attention/bf16.h"

#include <algorithm>
#include <limits>

#include "autograd/gemm/units.h"
#include "autograd/ops/attention/tiles.h"

namespace ink::cpu {
namespace {

using tiles::Buffer;
using tiles::Sizes;

constexpr int64_t kQueries = 128, kKeys = 256;  // of a pair of tiles
constexpr int64_t kWidest = 256;                // rows of q, k and v

// The matrices of a tensor, one for each head, with contiguous rows.
struct Rows {
  const Array& tensor;
  bfloat16* data;
  int64_t ld;

  explicit Rows(const Array& x)
      : tensor(x), data(const_cast<bfloat16*>(x.data<bfloat16>())), ld(x.strides()[x.dim() - 2]) {}
  bfloat16* row(int64_t head, int64_t i) const {
    return data + batch_offset(tensor, head) + i * ld;
  }
  GemmOperand from(int64_t head, int64_t i) const { return {row(head, i), bf16, {false, ld}}; }
};

// One thread's memory.
struct Scratch {
  Buffer<float> scores, dweights, sums, dk, dv;
  Buffer<bfloat16> weights, dscores;
  const GemmUnit& unit = *gemm_unit(bf16);
  Buffer<bfloat16> packed;

  // keys: the number of rows of dk and dv that backward collects; 0 in forward.
  explicit Scratch(const Sizes& size, int64_t keys)
      : scores(kQueries * kKeys),
        dweights(keys > 0 ? kQueries * kKeys : 0),
        sums(kQueries * std::max(size.d, size.dv)),
        dk(keys * size.d),
        dv(keys * size.dv),
        weights(kQueries * kKeys),
        dscores(keys > 0 ? kQueries * kKeys : 0),
        packed(unit.scratch_bytes(bf16, kKeys, kKeys, kKeys) / 2) {}

  // c (m, n) = a b, or += a b.
  void product(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
               float* c, int64_t ld, bool accumulate) const {
    unit.product({m, n, k, a, b, {c, f32, ld}, accumulate}, packed.data);
  }
  GemmOperand tile(const Buffer<bfloat16>& x) const { return {x.data, bf16, {false, kKeys}}; }
};

struct Softmax {
  float top = -std::numeric_limits<float>::infinity(), total = 0;

  // Adds the scores of `seen` more keys to the softmax, and overwrites them. p gets their n weights
  // so far, which are zero from `seen` on. Returns the factor by which earlier weights shrink.
  float add(bfloat16* p, float* s, int64_t seen, int64_t n, float scale) {
    float highest = top;
#pragma omp simd reduction(max : highest)
    for (int64_t j = 0; j < seen; ++j) highest = std::max(highest, s[j] * scale);
    const float shrink = seen > 0 ? simd::exp(top - highest) : 1.0f;
    if (seen > 0) top = highest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < seen; ++j) {
      const float weight = simd::exp_nonpositive(s[j] * scale - highest);
      sum += weight;
      s[j] = weight;
    }
    gemm_unit(bf16)->round_row(p, s, seen, 1);
    std::fill(p + seen, p + n, bfloat16());
    total = total * shrink + sum;
    return shrink;
  }
};

// How many of the n keys from j0 on query i sees.
int64_t seen_by(const Sizes& size, int64_t i, int64_t j0, int64_t n) {
  return std::clamp<int64_t>(i + size.diagonal + 1 - j0, 0, n);
}

// The first query that sees a key; those before it see nothing.
int64_t first_query(const Sizes& size) {
  return std::clamp<int64_t>(-size.diagonal, 0, size.queries);
}
void clear_rows(const Rows& to, int64_t head, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(to.row(head, i), cols, bfloat16());
}

void forward_tile(const Sizes& size, float scale, int64_t head, int64_t i0, const Rows& q,
                  const Rows& k, const Rows& v, const Rows& out, float* lse, const Scratch& own) {
  const int64_t rows = std::min(kQueries, size.queries - i0), end = size.seen(i0 + rows);
  Softmax softmax[kQueries];
  std::fill_n(own.sums.data, rows * size.dv, 0.0f);
  for (int64_t j0 = 0; j0 < end; j0 += kKeys) {
    const int64_t n = std::min(kKeys, end - j0);
    own.product(rows, n, size.d, q.from(head, i0), k.from(head, j0).transposed(), own.scores, kKeys,
                false);
    for (int64_t i = 0; i < rows; ++i) {
      const float shrink = softmax[i].add(own.weights + i * kKeys, own.scores + i * kKeys,
                                          seen_by(size, i0 + i, j0, n), n, scale);
      float* sum = own.sums + i * size.dv;
      for (int64_t c = 0; c < size.dv && shrink != 1; ++c) sum[c] *= shrink;
    }
    own.product(rows, size.dv, n, own.tile(own.weights), v.from(head, j0), own.sums, size.dv, true);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const auto& [top, total] = softmax[i];
    lse[i] = top + simd::log(total);
    gemm_unit(bf16)->round_row(out.row(head, i0 + i), own.sums + i * size.dv, size.dv,
                               total > 0 ? 1 / total : 1);
  }
}

float dot(const bfloat16* a, const bfloat16* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) sum += static_cast<float>(a[c]) * static_cast<float>(b[c]);
  return sum;
}

//   p  = exp(scale s - lse)
//   ds = scale p (dp - dout . out)
// Both are zero from `seen` on. s and dp are overwritten.
void backward_row(bfloat16* p, bfloat16* ds, float* s, float* dp, int64_t seen, int64_t n,
                  float scale, float lse, float delta) {
#pragma omp simd
  for (int64_t j = 0; j < seen; ++j) {
    s[j] = simd::exp(s[j] * scale - lse);
    dp[j] = scale * s[j] * (dp[j] - delta);
  }
  gemm_unit(bf16)->round_row(p, s, seen, 1);
  gemm_unit(bf16)->round_row(ds, dp, seen, 1);
  std::fill(p + seen, p + n, bfloat16());
  std::fill(ds + seen, ds + n, bfloat16());
}

void backward_tile(const Sizes& size, float scale, int64_t head, int64_t i0, const Rows& q,
                   const Rows& k, const Rows& v, const Rows& out, const Rows& dout,
                   const float* lse, const Rows& dq, const Scratch& own) {
  const int64_t rows = std::min(kQueries, size.queries - i0), end = size.seen(i0 + rows);
  float delta[kQueries];
  for (int64_t i = 0; i < rows; ++i)
    delta[i] = dot(dout.row(head, i0 + i), out.row(head, i0 + i), size.dv);
  std::fill_n(own.sums.data, rows * size.d, 0.0f);
  for (int64_t j0 = 0; j0 < end; j0 += kKeys) {
    const int64_t n = std::min(kKeys, end - j0);
    const GemmOperand queries = q.from(head, i0), douts = dout.from(head, i0);
    own.product(rows, n, size.d, queries, k.from(head, j0).transposed(), own.scores, kKeys, false);
    own.product(rows, n, size.dv, douts, v.from(head, j0).transposed(), own.dweights, kKeys, false);
    for (int64_t i = 0; i < rows; ++i)
      backward_row(own.weights + i * kKeys, own.dscores + i * kKeys, own.scores + i * kKeys,
                   own.dweights + i * kKeys, seen_by(size, i0 + i, j0, n), n, scale, lse[i],
                   delta[i]);
    const GemmOperand weights = own.tile(own.weights), dscores = own.tile(own.dscores);
    own.product(n, size.dv, rows, weights.transposed(), douts, own.dv + j0 * size.dv, size.dv,
                true);
    own.product(n, size.d, rows, dscores.transposed(), queries, own.dk + j0 * size.d, size.d, true);
    own.product(rows, size.d, n, dscores, k.from(head, j0), own.sums, size.d, true);
  }
  for (int64_t i = 0; i < rows; ++i)
    gemm_unit(bf16)->round_row(dq.row(head, i0 + i), own.sums + i * size.d, size.d, 1);
}

bool rows_in_one_piece(const Array& x) {
  const auto layout = matrix_layout(x);
  return layout && !layout->transposed;
}

}  // namespace

bool suits_attention_bf16(const AttentionInputs& in) {
  const auto& [q, k, v, mask, rule] = in;
  constexpr int64_t kFewest = 32;  // queries and keys for which the unit pays
  if (q.dtype() != bf16 || mask.defined() || rule.dropout_p > 0) return false;
  const GemmUnit* unit = gemm_unit(bf16);
  if (unit == nullptr || unit == gemm_unit(f32, true)) return false;  // tiles.h converts just once
  const Sizes size(q, k, v, rule.diagonal);
  return size.group == 1 && size.heads >= max_threads() &&
         std::min(size.queries, size.keys) >= kFewest && std::max(size.d, size.dv) <= kWidest &&
         rows_in_one_piece(q) && rows_in_one_piece(k) && rows_in_one_piece(v);
}

void attention_bf16(Array& out, Array& lse, const AttentionInputs& in) {
  const Sizes size(in.q, in.k, in.v, in.rule.diagonal);
  const Rows q_rows(in.q), k_rows(in.k), v_rows(in.v), out_rows(out);
  float* sums = lse.mutable_data<float>();
  static_cast<void>(out.mutable_data<bfloat16>());  // written through out_rows
  const auto scratch = tiles::scratch_for<Scratch>(size.heads, size, int64_t{0});
  tiles::for_each_item(size.heads, scratch, [&](int64_t head, const Scratch& own) {
    const int64_t first = first_query(size);
    clear_rows(out_rows, head, first, size.dv);
    std::fill_n(sums + head * size.queries, first, Softmax().top);
    for (int64_t i0 = first; i0 < size.queries; i0 += kQueries)
      forward_tile(size, static_cast<float>(in.rule.scale), head, i0, q_rows, k_rows, v_rows,
                   out_rows, sums + head * size.queries + i0, own);
  });
}

void attention_bf16_backward(AttentionGradients& d, const Array& dout, const Array& out,
                             const Array& lse, const AttentionInputs& in) {
  const Sizes size(in.q, in.k, in.v, in.rule.diagonal);
  const Array upstream = rows_in_one_piece(dout) ? dout : as_gemm_operand(dout, bf16);
  for (Array* x : {&d.dq, &d.dk, &d.dv}) static_cast<void>(x->mutable_data<bfloat16>());
  const Rows q_rows(in.q), k_rows(in.k), v_rows(in.v), out_rows(out), dout_rows(upstream),
      dq_rows(d.dq), dk_rows(d.dk), dv_rows(d.dv);
  const float* sums = lse.data<float>();
  const auto scratch = tiles::scratch_for<Scratch>(size.heads, size, size.keys);
  tiles::for_each_item(size.heads, scratch, [&](int64_t head, const Scratch& own) {
    std::fill_n(own.dk.data, size.keys * size.d, 0.0f);
    std::fill_n(own.dv.data, size.keys * size.dv, 0.0f);
    const int64_t first = first_query(size);
    clear_rows(dq_rows, head, first, size.d);
    for (int64_t i0 = first; i0 < size.queries; i0 += kQueries)
      backward_tile(size, static_cast<float>(in.rule.scale), head, i0, q_rows, k_rows, v_rows,
                    out_rows, dout_rows, sums + head * size.queries + i0, dq_rows, own);
    for (int64_t j = 0; j < size.keys; ++j) {
      gemm_unit(bf16)->round_row(dk_rows.row(head, j), own.dk + j * size.d, size.d, 1);
      gemm_unit(bf16)->round_row(dv_rows.row(head, j), own.dv + j * size.dv, size.dv, 1);
    }
  });
}

}  // namespace ink::cpu
