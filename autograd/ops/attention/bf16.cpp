#include <algorithm>
#include <limits>
#include <vector>

#include "autograd/gemm/units.h"
#include "autograd/loops/lanes.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/attention/tiles.h"
#include "autograd/ops/attention/ways.h"

namespace ink::cpu {
namespace {

using tiles::Buffer;
using tiles::Sizes;

constexpr int64_t kQueries = 128, kKeys = 256;  // of a pair of tiles, at most
constexpr int64_t kWidest = 256;                // rows of q, k and v

// A head's matrix of a tensor, with contiguous rows.
struct Rows {
  bfloat16* data;
  int64_t ld;

  Rows(const Array& x, int64_t head)
      : data(const_cast<bfloat16*>(x.data<bfloat16>()) + batch_offset(x, head)),
        ld(x.strides()[x.dim() - 2]) {}
  bfloat16* row(int64_t i) const { return data + i * ld; }
  GemmOperand from(int64_t i) const { return {row(i), bf16, {false, ld}}; }
  Strided<const bfloat16> strided(int64_t i) const { return {row(i), ld, 1}; }
};

// Numbers from begin to end - 1.
struct Span {
  int64_t begin, end;
  bool holds(int64_t i) const { return begin <= i && i < end; }
};

// One thread's memory.
struct Scratch {
  Buffer<float> scores, dweights, sums, dk, dv;
  Buffer<bfloat16> weights, dscores;
  const GemmUnit& unit = *gemm_unit(bf16);
  // Of a tile. A short one wastes less beyond the diagonal; a long one uses keys that AMX packs
  // more often.
  const int64_t queries = unit.pays == nullptr ? kQueries / 2 : kQueries;
  Buffer<bfloat16> packed;

  // keys: the number of rows of dk and dv that backward collects; 0 in forward.
  Scratch(const Sizes& size, int64_t keys)
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
  // Rounds some of n elements; the others become zeros.
  void round_some(bfloat16* to, const float* from, Span some, int64_t n) const {
    std::fill(to, to + some.begin, bfloat16());
    unit.round_row(to + some.begin, from + some.begin, some.end - some.begin, 1);
    std::fill(to + some.end, to + n, bfloat16());
  }
  GemmOperand tile(const Buffer<bfloat16>& x) const { return {x.data, bf16, {false, kKeys}}; }
};

// The right side of a product, rows from `first` on: in place, or, with care (tiles.h), a copy.
class RightSide {
 public:
  RightSide(const Rows& x, int64_t first, int64_t rows, int64_t cols, bool careful)
      : operand_(x.from(first)), x_(x.strided(first)), rows_(rows), cols_(cols) {
    if (!careful) return;
    const int64_t ld = whole_vectors<bfloat16>(cols);
    copy_.resize(static_cast<size_t>(rows * ld));
    tiles::finite_rows(copy_.data(), x_, rows, cols);
    operand_ = {copy_.data(), bf16, {false, ld}};
  }
  operator const GemmOperand&() const { return operand_; }

  // With care: adds what the copy lacks to a product with p, for the rows that each output sees.
  template <class Sees>
  void add_rest(float* sums, int64_t outputs, const Strided<const bfloat16>& p, Sees&& sees) const {
    if (!copy_.empty()) tiles::add_not_finite(sums, cols_, outputs, p, x_, rows_, cols_, sees);
  }

 private:
  GemmOperand operand_;
  Strided<const bfloat16> x_;
  int64_t rows_, cols_;
  std::vector<bfloat16> copy_;
};

// Calls f(x, live) for the vectors of s[0 ... n - 1]; live(i): is x[i] one of them? The last vector
// is a case of its own, so that the others ask nothing.
template <class F>
[[gnu::always_inline]] inline void each_vector(float* s, int64_t n, const F& f) {
  const int64_t whole = n / kLanes<float> * kLanes<float>;
  for (int64_t j = 0; j < whole; j += kLanes<float>) f(s + j, [](int) { return true; });
  const int rest = static_cast<int>(n - whole);
  if (rest > 0) f(s + whole, [rest](int i) { return i < rest; });
}

struct Softmax {
  float top = -std::numeric_limits<float>::infinity(), total = 0;

  // Adds the scores of `seen` more keys to the softmax, and overwrites them with their weights so
  // far. Returns the factor by which earlier weights shrink.
  float add(float* s, int64_t seen, float scale) {
    constexpr int n = kLanes<float>;
    float tops[n], sums[n] = {};
    std::fill_n(tops, n, top);
    each_vector(s, seen, [&](float* x, auto live) {
#pragma omp simd
      for (int i = 0; i < n; ++i) tops[i] = std::max(tops[i], live(i) ? x[i] * scale : top);
    });
    const float highest = join_lanes<n>(tops, [](float a, float b) { return std::max(a, b); });
    const float shrink = seen > 0 ? simd::exp(top - highest) : 1.0f;
    if (seen > 0) top = highest;
    each_vector(s, seen, [&](float* x, auto live) {
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        const float weight = live(i) ? simd::exp_nonpositive(x[i] * scale - highest) : 0.0f;
        sums[i] += weight;
        if (live(i)) x[i] = weight;  // other numbers may be those of the next row
      }
    });
    const float sum = join_lanes<n>(sums, [](float a, float b) { return a + b; });
    total = total * shrink + sum;
    return shrink;
  }
};

// Which of the n keys from j0 on query i sees.
Span seen_by(const Sizes& size, int64_t i, int64_t j0, int64_t n) {
  return {std::clamp<int64_t>(size.first_seen(i) - j0, 0, n),
          std::clamp<int64_t>(i + size.diagonal + 1 - j0, 0, n)};
}

// The first query that sees a key; those before it see nothing.
int64_t first_query(const Sizes& size) {
  return std::clamp<int64_t>(-size.diagonal, 0, size.queries);
}
void clear_rows(const Rows& to, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(to.row(i), cols, bfloat16());
}

void forward_tile(const Sizes& size, float scale, int64_t i0, const Rows& q, const Rows& k,
                  const Rows& v, const Rows& out, float* lse, const Scratch& own,
                  bool careful = false) {
  const int64_t rows = std::min(own.queries, size.queries - i0), end = size.seen(i0 + rows);
  Softmax softmax[kQueries];
  std::fill_n(own.sums.data, rows * size.dv, 0.0f);
  for (int64_t j0 = size.first_seen(i0); j0 < end; j0 += kKeys) {
    const int64_t n = std::min(kKeys, end - j0);
    own.product(rows, n, size.d, q.from(i0), k.from(j0).transposed(), own.scores, kKeys, false);
    for (int64_t i = 0; i < rows; ++i) {
      const Span seen = seen_by(size, i0 + i, j0, n);
      float* const scores = own.scores + i * kKeys;
      const float shrink = softmax[i].add(scores + seen.begin, seen.end - seen.begin, scale);
      own.round_some(own.weights + i * kKeys, scores, seen, n);
      float* sum = own.sums + i * size.dv;
      for (int64_t c = 0; c < size.dv && shrink != 1; ++c) sum[c] *= shrink;
    }
    const RightSide values(v, j0, n, size.dv, careful);
    own.product(rows, size.dv, n, own.tile(own.weights), values, own.sums, size.dv, true);
    values.add_rest(own.sums, rows, {own.weights, kKeys, 1},
                    [&](int64_t i, int64_t j) { return seen_by(size, i0 + i, j0, n).holds(j); });
  }
  if (!careful && !tiles::all_finite(own.sums.data, rows * size.dv))
    return forward_tile(size, scale, i0, q, k, v, out, lse, own, true);
  for (int64_t i = 0; i < rows; ++i) {
    const auto& [top, total] = softmax[i];
    lse[i] = top + simd::log(total);
    own.unit.round_row(out.row(i0 + i), own.sums + i * size.dv, size.dv, total > 0 ? 1 / total : 1);
  }
}

float dot(const bfloat16* a, const bfloat16* b, int64_t n) {
  return sum_of<float>(
      n, [&](int64_t c) { return static_cast<float>(a[c]) * static_cast<float>(b[c]); });
}

// Of the keys that a query has seen, s becomes p = exp(scale s - lse), and dp becomes
// ds = scale p (dp - dout . out).
void backward_row(float* s, float* dp, int64_t seen, float scale, float lse, float delta) {
  for (int64_t j = 0; j < seen; j += kLanes<float>) {  // whole vectors
#pragma omp simd
    for (int64_t i = j; i < j + kLanes<float>; ++i) {
      s[i] = simd::exp_nonpositive(s[i] * scale - lse);
      dp[i] = scale * s[i] * (dp[i] - delta);
    }
  }
}

// Returns false if dq is not finite.
bool backward_tile(const Sizes& size, float scale, int64_t i0, const Rows& q, const Rows& k,
                   const Rows& v, const Rows& out, const Rows& dout, const float* lse,
                   const Rows& dq, const Scratch& own, bool careful) {
  const int64_t rows = std::min(own.queries, size.queries - i0), end = size.seen(i0 + rows);
  float delta[kQueries];
  for (int64_t i = 0; i < rows; ++i) delta[i] = dot(dout.row(i0 + i), out.row(i0 + i), size.dv);
  std::fill_n(own.sums.data, rows * size.d, 0.0f);
  const RightSide queries(q, i0, rows, size.d, careful), douts(dout, i0, rows, size.dv, careful);
  for (int64_t j0 = size.first_seen(i0); j0 < end; j0 += kKeys) {
    const int64_t n = std::min(kKeys, end - j0);
    own.product(rows, n, size.d, q.from(i0), k.from(j0).transposed(), own.scores, kKeys, false);
    own.product(rows, n, size.dv, dout.from(i0), v.from(j0).transposed(), own.dweights, kKeys,
                false);
    for (int64_t i = 0; i < rows; ++i) {
      const Span seen = seen_by(size, i0 + i, j0, n);
      float *s = own.scores + i * kKeys, *dp = own.dweights + i * kKeys;
      backward_row(s, dp, seen.end, scale, lse[i], delta[i]);
      own.round_some(own.weights + i * kKeys, s, seen, n);
      own.round_some(own.dscores + i * kKeys, dp, seen, n);
    }
    const GemmOperand weights = own.tile(own.weights), dscores = own.tile(own.dscores);
    float *const dv = own.dv + j0 * size.dv, *const dk = own.dk + j0 * size.d;
    const RightSide keys(k, j0, n, size.d, careful);
    own.product(n, size.dv, rows, weights.transposed(), douts, dv, size.dv, true);
    own.product(n, size.d, rows, dscores.transposed(), queries, dk, size.d, true);
    own.product(rows, size.d, n, dscores, keys, own.sums, size.d, true);
    const auto sees = [&](int64_t i, int64_t j) { return seen_by(size, i0 + i, j0, n).holds(j); };
    const auto seen_from = [&](int64_t j, int64_t i) { return sees(i, j); };
    douts.add_rest(dv, n, {own.weights, 1, kKeys}, seen_from);
    queries.add_rest(dk, n, {own.dscores, 1, kKeys}, seen_from);
    keys.add_rest(own.sums, rows, {own.dscores, kKeys, 1}, sees);
  }
  for (int64_t i = 0; i < rows; ++i)
    own.unit.round_row(dq.row(i0 + i), own.sums + i * size.d, size.d, 1);
  return tiles::all_finite(own.sums.data, rows * size.d);
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
  if (unit == nullptr || unit->round_row == nullptr) return false;  // tiles.h converts just once
  const Sizes size(q, k, v, rule);
  return size.heads / size.group >= max_threads() && std::min(size.queries, size.keys) >= kFewest &&
         std::max(size.d, size.dv) <= kWidest && rows_in_one_piece(q) && rows_in_one_piece(k) &&
         rows_in_one_piece(v);
}

void attention_bf16(Array& out, Array& lse, const AttentionInputs& in) {
  const Sizes size(in.q, in.k, in.v, in.rule);
  float* sums = lse.mutable_data<float>();
  static_cast<void>(out.mutable_data<bfloat16>());  // written through Rows
  const auto scratch = tiles::scratch_for<Scratch>(size.heads, size, int64_t{0});
  tiles::for_each_item(size.heads, scratch, [&](int64_t head, const Scratch& own) {
    const Rows q(in.q, head), k(in.k, head / size.group), v(in.v, head / size.group), to(out, head);
    const int64_t first = first_query(size);
    clear_rows(to, first, size.dv);
    std::fill_n(sums + head * size.queries, first, Softmax().top);
    for (int64_t i0 = first; i0 < size.queries; i0 += own.queries)
      forward_tile(size, static_cast<float>(in.rule.scale), i0, q, k, v, to,
                   sums + head * size.queries + i0, own);
  });
}

void attention_bf16_backward(AttentionGradients& d, const Array& dout, const Array& out,
                             const Array& lse, const AttentionInputs& in) {
  const Sizes size(in.q, in.k, in.v, in.rule);
  const Array upstream = rows_in_one_piece(dout) ? dout : as_gemm_operand(dout, bf16);
  for (Array* x : {&d.dq, &d.dk, &d.dv}) static_cast<void>(x->mutable_data<bfloat16>());
  const float* sums = lse.data<float>();
  const int64_t kv_heads = size.heads / size.group;
  const auto scratch = tiles::scratch_for<Scratch>(kv_heads, size, size.keys);
  tiles::for_each_item(kv_heads, scratch, [&](int64_t kv_head, const Scratch& own) {
    const Rows k(in.k, kv_head), v(in.v, kv_head), dk(d.dk, kv_head), dv(d.dv, kv_head);
    const int64_t first = first_query(size), dk_size = size.keys * size.d,
                  dv_size = size.keys * size.dv;
    const auto run_head = [&](int64_t head, bool careful) {
      const Rows q(in.q, head), y(out, head), dy(upstream, head), dq(d.dq, head);
      clear_rows(dq, first, size.d);
      bool finite = true;
      for (int64_t i0 = first; i0 < size.queries && (finite || careful); i0 += own.queries)
        finite = backward_tile(size, static_cast<float>(in.rule.scale), i0, q, k, v, y, dy,
                               sums + head * size.queries + i0, dq, own, careful);
      return finite;
    };
    for (const bool careful : {false, true}) {
      std::fill_n(own.dk.data, dk_size, 0.0f);
      std::fill_n(own.dv.data, dv_size, 0.0f);
      bool finite = true;
      for (int64_t h = 0; h < size.group && (finite || careful); ++h)
        finite = run_head(kv_head * size.group + h, careful);
      if (finite && tiles::all_finite(own.dk.data, dk_size) &&
          tiles::all_finite(own.dv.data, dv_size))
        break;
    }
    for (int64_t j = 0; j < size.keys; ++j) {
      own.unit.round_row(dk.row(j), own.dk + j * size.d, size.d, 1);
      own.unit.round_row(dv.row(j), own.dv + j * size.dv, size.dv, 1);
    }
  });
}

}  // namespace ink::cpu
