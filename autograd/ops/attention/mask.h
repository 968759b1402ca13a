// attn_mask and dropout as attention's kernels see them: made for one pair of tiles at a time, in
// the layout of its scores, [j][i] of key j and query i.
#pragma once

#include <algorithm>
#include <limits>

#include "autograd/kernels/attention.h"
#include "autograd/ops/attention/tiles.h"
#include "autograd/random/dropout_mask.h"

namespace ink::tiles {

/// Sizes and strides of x broadcast to a shape: strides of 0 where it repeats.
inline Layout broadcast_layout(const Array& x, const Shape& shape) {
  Layout layout{shape, Shape::filled(shape.size(), 0), x.layout().offset};
  for (int64_t d = 1; d <= x.dim(); ++d) {
    if (x.size(-d) != 1) layout.strides[shape.size() - d] = x.strides()[x.dim() - d];
  }
  return layout;
}

/// Memory for the mask and the dropout of a pair of tiles; empty without them.
template <class T>
struct PairScratch {
  Buffer<T> rows;  // [i][j]: bias before it is transposed
  Buffer<T> bias;  // [j][i]: what is added to a score; -inf where nothing may be seen
  Buffer<T> drop;  // [j][i]: 0 or 1 / (1 - p), the factor of a weight

  PairScratch(bool masked, bool dropout)
      : rows(masked || dropout ? kKeys * kQueries<T> : 0),
        bias(masked ? kKeys * kQueries<T> : 0),
        drop(dropout ? kKeys * kQueries<T> : 0) {}
};

template <class T>
class Mask {
 public:
  static constexpr T kNever = -std::numeric_limits<T>::infinity();

  /// Its mask: bool or T, broadcast to the scores' shape; or undefined.
  explicit Mask(const AttentionInputs& in)
      : mask_(in.mask.defined() ? in.mask.seen_as(broadcast_layout(in.mask, in.scores_shape()))
                                : in.mask),
        window_(in.rule.window) {}

  explicit operator bool() const { return mask_.defined() || window_ > 0; }

  /// Fills bias. Returns the number of keys up to the last one that a query sees.
  int64_t load(const PairScratch<T>& to, int64_t head, const Pair<T>& pair) const {
    if (!mask_.defined()) {
      std::fill_n(to.bias.data, pair.n * kQueries<T>, T(0));
    } else if (mask_.dtype() == DType::boolean) {
      const Strided<const bool> x = Heads<const bool>(mask_)[head].from(pair.i0, pair.j0);
      const T bias[] = {kNever, 0};  // a table, so that the compiler does not branch
      for (int64_t i = 0; i < pair.rows; ++i) {
        const bool* allowed = x.data + i * x.row;
        T* row = to.rows + i * kKeys;
        for (int64_t j = 0; j < pair.n; ++j) row[j] = bias[allowed[j * x.col]];
      }
      load_lanes<T>(to.bias, {to.rows, kKeys, 1}, pair.rows, pair.n, 1);
    } else {
      load_lanes<T>(to.bias, Heads<const T>(mask_)[head].from(pair.i0, pair.j0), pair.rows, pair.n,
                    1);
    }
    return close(to, pair);
  }

  /// Adds the bias to the scores, and makes hidden ones -inf even if they were NaN.
  static void add(T* s, const PairScratch<T>& from, int64_t n) {
    const T* bias = from.bias;
    for (int64_t e = 0; e < n * kQueries<T>; ++e)
      s[e] = bias[e] == kNever ? kNever : s[e] + bias[e];
  }
  /// Zeroes the gradients, or the weights, of hidden scores.
  static void clear(T* ds, const PairScratch<T>& from, int64_t n) {
    const T* bias = from.bias;
    for (int64_t e = 0; e < n * kQueries<T>; ++e) ds[e] = bias[e] == kNever ? T(0) : ds[e];
  }
  /// Does query i of the pair see its key j?
  bool shows(const PairScratch<T>& from, const Pair<T>& pair, int64_t i, int64_t j) const {
    return *this ? from.bias[j * kQueries<T> + i] != kNever : j < pair.seen(i);
  }

 private:
  // Hides what the causal mask, the window or the end of the tile hides. Returns the number of keys
  // left.
  int64_t close(const PairScratch<T>& to, const Pair<T>& pair) const {
    int64_t end = 0;
    for (int64_t j = 0; j < pair.n; ++j) {
      T* row = to.bias + j * kQueries<T>;
      const int64_t end_lane = window_ > 0 ? pair.lane_of(j) + window_ : pair.rows;
      std::fill_n(row, pair.first_lane(j), kNever);
      std::fill(row + std::clamp<int64_t>(end_lane, 0, pair.rows), row + kQueries<T>, kNever);
      int open = 0;
      for (int i = 0; i < kQueries<T>; ++i) open |= row[i] != kNever;
      if (open) end = j + 1;
    }
    return end;
  }

  const Array mask_;
  const int64_t window_;
};

/// Drops the same weights as dropout(weights, p) would.
template <class T>
class WeightDropout {
 public:
  /// rows: q's size along its first dimension.
  WeightDropout(const AttentionRule& rule, const Sizes& size, int64_t rows)
      : on_(rule.dropout_p > 0),
        mask_(rule.dropout_p, rule.random),
        queries_(size.queries),
        keys_(size.keys),
        first_(first_of_batch(rule.random, size.heads * queries_ * keys_, rows)) {}

  explicit operator bool() const { return on_; }

  /// Fills drop.
  void load(const PairScratch<T>& to, int64_t head, const Pair<T>& pair) const {
    const DropoutMask mask = mask_;  // a local copy, which no write below can change
    const T kept = static_cast<T>(mask.kept);
    uint32_t digits[kKeys + 8];
    for (int64_t i = 0; i < pair.rows; ++i) {
      const int64_t first = first_ + (head * queries_ + pair.i0 + i) * keys_ + pair.j0;
      const int64_t skipped = first % 4, counters = (skipped + pair.n + 3) / 4;
      mask.fill_digits(digits, static_cast<uint64_t>(first / 4), static_cast<uint64_t>(counters));
      T* row = to.rows + i * kKeys;
      for (int64_t j = 0; j < pair.n; ++j) row[j] = mask.drops(digits[skipped + j]) ? T(0) : kept;
    }
    load_lanes<T>(to.drop, {to.rows, kKeys, 1}, pair.rows, pair.n, 1);
  }

  /// to = x times the factors in `drop`.
  static void apply(T* to, const T* x, const PairScratch<T>& from, int64_t n) {
    const T* drop = from.drop;
    for (int64_t e = 0; e < n * kQueries<T>; ++e) to[e] = x[e] * drop[e];
  }

 private:
  bool on_;
  DropoutMask mask_;
  int64_t queries_, keys_, first_;
};

}  // namespace ink::tiles
