// The forward kernel of attention (attention.cpp): each tile of queries meets the keys tile by
// tile, with running maxima and sums of its softmax.
#include <algorithm>
#include <iterator>
#include <limits>

#include "autograd/ops/attention/mask.h"
#include "autograd/ops/attention/ways.h"

namespace ink::cpu {
namespace {

using namespace tiles;

template <class T>
class Forward {
 public:
  Forward(Array& out, Array& lse, const AttentionInputs& in)
      : size_(in.q, in.k, in.v, in.rule),
        scale_(static_cast<T>(in.rule.scale)),
        q_(in.q),
        k_(in.k),
        v_(in.v),
        out_(out),
        lse_(lse.mutable_data<T>()),
        mask_(in),
        dropout_(in.rule, size_, in.q.size(0)) {}

  void run() const {
    const int64_t tiles = tiles_of(size_), n = size_.heads * tiles;
    const auto scratch = scratch_for<Scratch>(n, size_, bool(mask_), bool(dropout_));
    for_each_item(n, scratch, [&](int64_t item, const Scratch& own) {
      // Short and long causal tiles alternate, so that equal numbers of tiles are equal work.
      const int64_t at = item % tiles, tile = at % 2 ? tiles - 1 - at / 2 : at / 2;
      run_tile(item / tiles, tile * kQueries<T>, own);
    });
  }

 private:
  struct Scratch {
    Buffer<T> q_lanes, s, v_rows, sums;
    PairScratch<T> pair;
    Scratch(const Sizes& size, bool masked, bool dropout)
        : q_lanes(size.d * kQueries<T>),
          s(kKeys * kQueries<T>),
          v_rows(kKeys * whole_vectors<T>(size.dv)),
          sums(kQueries<T> * whole_vectors<T>(size.dv)),
          pair(masked, dropout) {}
  };

  static int64_t tiles_of(const Sizes& size) {  // of a head's queries
    return (size.queries + kQueries<T> - 1) / kQueries<T>;
  }

  // A row's softmax so far: the largest score, the sum of weights, and the factor by which the last
  // tile shrank that sum.
  struct Softmax {
    T top[kQueries<T>], total[kQueries<T>] = {}, shrink[kQueries<T>];
    Softmax() { std::fill(std::begin(top), std::end(top), Mask<T>::kNever); }
  };

  void run_tile(int64_t head, int64_t i0, const Scratch& scratch, bool careful = false) const {
    const int64_t rows = std::min(kQueries<T>, size_.queries - i0), end = size_.seen(i0 + rows);
    const int64_t width = whole_vectors<T>(size_.dv);
    load_lanes<T>(scratch.q_lanes, q_[head].from(i0, 0), rows, size_.d, scale_);
    Softmax softmax;
    bool first = true;
    for (int64_t j0 = size_.first_seen(i0); j0 < end; j0 += kKeys) {
      Pair<T> pair{i0, j0, rows, std::min(kKeys, end - j0), size_.diagonal};
      if (mask_) pair.n = mask_.load(scratch.pair, head, pair);
      if (pair.n == 0) continue;
      run_pair(head, pair, first, softmax, scratch, careful);
      first = false;
    }
    T lse[kQueries<T>];
    for (int64_t i = 0; i < kQueries<T>; ++i) lse[i] = softmax.top[i] + simd::log(softmax.total[i]);
    std::copy_n(lse, rows, lse_ + head * size_.queries + i0);
    for (int64_t i = 0; i < rows; ++i) {
      if (softmax.total[i] != 0) continue;  // it saw nothing
      std::fill_n(scratch.sums + i * width, width, T(0));
      softmax.total[i] = 1;
    }
    if (!careful && !all_finite(scratch.sums.data, rows * width))
      return run_tile(head, i0, scratch, true);
    store_rows<T>(out_[head].from(i0, 0), rows, size_.dv, scratch.sums, width,
                  [&](int64_t i) { return 1 / softmax.total[i]; });
  }

  void run_pair(int64_t head, const Pair<T>& pair, bool first, Softmax& softmax,
                const Scratch& scratch, bool careful) const {
    const int64_t width = whole_vectors<T>(size_.dv), kv_head = head / size_.group;
    scores<T>(scratch.s, pair, k_[kv_head].from(pair.j0, 0), scratch.q_lanes, size_.d);
    if (mask_) mask_.add(scratch.s, scratch.pair, pair.n);
    weights<T>(scratch.s, pair, softmax.top, softmax.total, softmax.shrink);
    for (int64_t i = 0; i < pair.rows && !first; ++i) {
      for (int64_t c = 0; c < width; ++c) scratch.sums[i * width + c] *= softmax.shrink[i];
    }
    if (dropout_) {
      dropout_.load(scratch.pair, head, pair);
      dropout_.apply(scratch.s, scratch.s, scratch.pair, pair.n);
    }
    const Strided<const T> v = v_[kv_head].from(pair.j0, 0);
    const auto rows = careful ? finite_rows<T> : vector_rows<T>;
    sum_over_keys<T>(scratch.sums, width, pair, scratch.s,
                     rows(scratch.v_rows, v, pair.n, size_.dv), !first);
    if (!careful) return;
    const Strided<const T> p{scratch.s, 1, kQueries<T>};
    add_not_finite(scratch.sums.data, width, pair.rows, p, v, pair.n, size_.dv,
                   [&](int64_t i, int64_t j) { return mask_.shows(scratch.pair, pair, i, j); });
  }

  const Sizes size_;
  const T scale_;
  const Heads<const T> q_, k_, v_;
  const Heads<T> out_;
  T* const lse_;
  const Mask<T> mask_;
  const WeightDropout<T> dropout_;
};

}  // namespace

void attention(Array& out, Array& lse, const AttentionInputs& in) {
  const auto& [q, k, v, mask, rule] = in;
  if (out.numel() == 0 || k.size(-2) == 0) {
    fill(out, 0);
    return fill(lse, std::numeric_limits<double>::infinity());  // so that no weight counts
  }
  if (suits_attention_decode(in)) return attention_decode(out, lse, in);
  if (q.dtype() == f64) return Forward<double>(out, lse, in).run();
  if (q.dtype() == f32) return Forward<float>(out, lse, in).run();
  if (suits_attention_bf16(in)) return attention_bf16(out, lse, in);
  Array wide = f32_like(out);
  attention(wide, lse, {in_f32(q), in_f32(k), in_f32(v), mask, rule});
  copy(out, wide);
}

}  // namespace ink::cpu
