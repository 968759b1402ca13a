// The backward kernel of attention (attention.cpp): each head's keys meet its queries tile by tile,
// and collect dK and dV.
#include <algorithm>
#include <numeric>

#include "autograd/ops/attention/mask.h"
#include "autograd/ops/attention/ways.h"

namespace ink::cpu {
namespace {

using namespace tiles;

// Where ds goes when the mask has a gradient. If several heads or slices of keys share elements of
// the mask, each part of the work sums into its own memory, and the parts are added in order.
template <class T>
class MaskGradient {
 public:
  MaskGradient(Array& dmask, const Shape& scores)
      : size_(dmask.defined() ? dmask.numel() : 0),
        view_(dmask.defined() ? dmask.seen_as(broadcast_layout(dmask, scores)) : dmask) {
    for (int64_t d = 0; dmask.defined() && d < scores.size(); ++d)
      shared_ |= d != scores.size() - 2 && scores[d] > 1 && view_.strides()[d] == 0;
    if (!dmask.defined()) return;
    fill(dmask, 0);
    data_ = dmask.mutable_data<T>();
  }

  explicit operator bool() const { return data_ != nullptr; }
  /// How many elements of its own a part of the work needs.
  int64_t own_size() const { return shared_ ? size_ : 0; }

  void add(const T* ds, int64_t head, const Pair<T>& pair, const Buffer<T>& own) const {
    const int64_t row = view_.strides()[view_.dim() - 2], col = view_.strides()[view_.dim() - 1];
    T* to =
        (shared_ ? own.data : data_) + batch_offset(view_, head) + pair.i0 * row + pair.j0 * col;
    for (int64_t i = 0; i < pair.rows; ++i) {
      const int64_t seen = pair.seen(i);
      for (int64_t j = 0; j < seen; ++j) to[i * row + j * col] += ds[j * kQueries<T> + i];
    }
  }

  void add_part(const Buffer<T>& own) const {
    parallel_for(own_size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) data_[e] += own[e];
    });
  }

 private:
  const int64_t size_;
  const Array view_;  // dmask, which has the mask's own shape, broadcast to the scores'
  T* data_ = nullptr;
  bool shared_ = false;
};

// If there are few heads, a head's keys are cut into slices that threads work on side by side. Each
// slice has its own rows of dK and dV. dQ is a sum with one part for each slice.
template <class T>
class Backward {
 public:
  Backward(AttentionGradients& d, const Array& dout, const Array& out, const Array& lse,
           const AttentionInputs& in)
      : size_(in.q, in.k, in.v, in.rule),
        scale_(static_cast<T>(in.rule.scale)),
        kv_heads_(size_.heads / size_.group),
        slices_(slices_of(size_)),
        parts_(parts_of(size_)),
        q_(in.q),
        k_(in.k),
        v_(in.v),
        out_(out),
        dout_(dout),
        lse_(lse.data<T>()),
        dq_(d.dq),
        dk_(d.dk),
        dv_(d.dv),
        mask_(in),
        dmask_(d.dmask, in.scores_shape()),
        dropout_(in.rule, size_, in.q.size(0)) {}

  void run() const {
    const int64_t n = kv_heads_ * slices_;
    const auto scratch =
        scratch_for<Scratch>(n, size_, bool(mask_), bool(dropout_), dmask_.own_size());
    for_each_item(n, scratch, [&](int64_t item, const Scratch& own) {
      const auto run = [&](bool careful) {
        return run_slice(item / slices_, item % slices_, own, careful);
      };
      if (dmask_ || !run(false)) run(true);  // once, if dmask collects what it adds
    });
    if (slices_ > 1) add_parts();
    for (const Scratch& own : scratch) dmask_.add_part(own.dmask);
  }

 private:
  struct Scratch {
    int64_t width, v_width;  // d and dv in whole vectors
    Buffer<T> q_lanes, dout_lanes, out_lanes, q_rows, dout_rows, k_rows, p, ds, dq, dk, dv, dmask;
    PairScratch<T> pair;

    Scratch(const Sizes& size, bool masked, bool dropout, int64_t mask_size)
        : width(whole_vectors<T>(size.d)),
          v_width(whole_vectors<T>(size.dv)),
          q_lanes(size.d * kQueries<T>),
          dout_lanes(size.dv * kQueries<T>),
          out_lanes(size.dv * kQueries<T>),
          q_rows(width * kQueries<T>),
          dout_rows(v_width * kQueries<T>),
          k_rows(size.keys * width),
          p(kKeys * kQueries<T>),
          ds(kKeys * kQueries<T>),
          dq(width * kQueries<T>),
          dk(size.keys * width),
          dv(size.keys * v_width),
          dmask(mask_size),
          pair(masked, dropout) {
      std::fill_n(dmask.data, mask_size, T(0));
    }
  };

  // A tile of queries of one head, and a slice of keys up to the last one that it sees.
  struct Tile {
    int64_t head, i0, rows, begin, end;
    Rows<T> k_rows, q_rows, dout_rows;
    T lse[kQueries<T>], mean[kQueries<T>];  // mean of m_ij dout_i . v_j under p: dout_i . out_i
    bool careful;
  };

  static int64_t slices_of(const Sizes& size) {
    const int64_t kv_heads = size.heads / size.group;
    return kv_heads >= 4 * max_threads() ? 1 : max_threads() / std::gcd(kv_heads, max_threads());
  }
  // The numbers in dQ's parts.
  static int64_t parts_of(const Sizes& size) {
    const int64_t slices = slices_of(size);
    return slices > 1 ? slices * size.heads * size.queries * size.d : 0;
  }

  // The first key of a slice. Slices are whole vectors of about equal work, which is the number of
  // (query, key) pairs.
  int64_t slice_begin(int64_t slice) const {
    const auto seen_by = [&](int64_t key) {
      return size_.queries - std::clamp<int64_t>(key - size_.diagonal, 0, size_.queries) + 1;
    };
    int64_t total = 0, before = 0, key = 0;
    for (int64_t j = 0; j < size_.keys; ++j) total += seen_by(j);
    for (; key < size_.keys && before < total / slices_ * slice; ++key) before += seen_by(key);
    return slice == slices_ ? size_.keys : std::min(size_.keys, whole_vectors<T>(key));
  }

  // The rows of a product's right side.
  static Rows<T> product_rows(bool careful, T* memory, const Strided<const T>& x, int64_t rows,
                              int64_t cols) {
    return (careful ? finite_rows<T> : vector_rows<T>)(memory, x, rows, cols);
  }

  // Returns false as soon as a gradient is not finite, unless it computes with care.
  bool run_slice(int64_t kv_head, int64_t slice, const Scratch& scratch, bool careful) const {
    const int64_t begin = slice_begin(slice), end = slice_begin(slice + 1);
    const Rows<T> k_rows =
        product_rows(careful, scratch.k_rows, k_[kv_head].from(begin, 0), end - begin, size_.d);
    std::fill_n(scratch.dk.data, (end - begin) * scratch.width, T(0));
    std::fill_n(scratch.dv.data, (end - begin) * scratch.v_width, T(0));
    for (int64_t h = 0; h < size_.group; ++h) {
      const int64_t head = kv_head * size_.group + h;
      for (int64_t i0 = 0; i0 < size_.queries; i0 += kQueries<T>) {
        const int64_t rows = std::min(kQueries<T>, size_.queries - i0);
        Tile tile{head, i0, rows, begin,  std::min(end, size_.seen(i0 + rows)), k_rows, {},
                  {},   {}, {},   careful};
        if (tile.end <= begin || !run_tile(tile, scratch))
          std::fill_n(scratch.dq.data, rows * scratch.width, T(0));
        if (!careful && !all_finite(scratch.dq.data, rows * scratch.width)) return false;
        store_dq(slice, tile, scratch);
      }
    }
    if (!careful && !(all_finite(scratch.dk.data, (end - begin) * scratch.width) &&
                      all_finite(scratch.dv.data, (end - begin) * scratch.v_width)))
      return false;
    store_rows<T>(dk_[kv_head].from(begin, 0), end - begin, size_.d, scratch.dk, scratch.width,
                  [&](int64_t) { return scale_; });
    store_rows<T>(dv_[kv_head].from(begin, 0), end - begin, size_.dv, scratch.dv, scratch.v_width,
                  [](int64_t) { return T(1); });
    return true;
  }

  // Computes dq of a tile, and adds its share to dk and dv. Returns false if the tile sees nothing;
  // dq is then not written.
  bool run_tile(Tile& tile, const Scratch& scratch) const {
    load_tile(tile, scratch);
    bool first = true;
    const int64_t first_key = std::max(tile.begin, size_.first_seen(tile.i0));
    for (int64_t j0 = first_key; j0 < tile.end; j0 += kKeys) {
      Pair<T> pair{tile.i0, j0, tile.rows, std::min(kKeys, tile.end - j0), size_.diagonal};
      if (mask_) pair.n = mask_.load(scratch.pair, tile.head, pair);
      if (pair.n == 0) continue;
      run_pair(tile, pair, first, scratch);
      first = false;
    }
    return !first;
  }

  void load_tile(Tile& tile, const Scratch& scratch) const {
    constexpr int64_t kQ = kQueries<T>;
    const Strided<const T> q = q_[tile.head].from(tile.i0, 0),
                           dout = dout_[tile.head].from(tile.i0, 0);
    load_lanes<T>(scratch.q_lanes, q, tile.rows, size_.d, scale_);
    load_lanes<T>(scratch.dout_lanes, dout, tile.rows, size_.dv, 1);
    load_lanes<T>(scratch.out_lanes, out_[tile.head].from(tile.i0, 0), tile.rows, size_.dv, 1);
    std::copy_n(lse_ + tile.head * size_.queries + tile.i0, tile.rows, tile.lse);
    for (int64_t i = 0; i < tile.rows; ++i) {  // it may see nothing: -inf - -inf would be NaN
      if (tile.lse[i] == Mask<T>::kNever) tile.lse[i] = 0;
    }
    tile.q_rows = product_rows(tile.careful, scratch.q_rows, q, tile.rows, size_.d);
    tile.dout_rows = product_rows(tile.careful, scratch.dout_rows, dout, tile.rows, size_.dv);
    for (int64_t c = 0; c < size_.dv; ++c) {
      for (int64_t i = 0; i < kQ; ++i)
        tile.mean[i] += scratch.dout_lanes[c * kQ + i] * scratch.out_lanes[c * kQ + i];
    }
  }

  void run_pair(const Tile& tile, const Pair<T>& pair, bool first, const Scratch& scratch) const {
    constexpr int64_t kQ = kQueries<T>;
    const int64_t j0 = pair.j0, at = j0 - tile.begin, kv_head = tile.head / size_.group;
    T *const p = scratch.p, *const ds = scratch.ds;
    T lse[kQ], mean[kQ];  // local copies: the compiler knows that writes to p and ds miss them
    std::copy_n(tile.lse, kQ, lse);
    std::copy_n(tile.mean, kQ, mean);
    scores<T>(p, pair, k_[kv_head].from(j0, 0), scratch.q_lanes, size_.d);
    if (mask_) mask_.add(p, scratch.pair, pair.n);
    map_scores<T>(pair, p, [&](T s, bool sees, int64_t, int i) {
      return sees ? simd::exp_nonpositive(s - lse[i]) : T(0);
    });
    if (mask_ && tile.careful) mask_.clear(p, scratch.pair, pair.n);  // lse may be NaN
    if (dropout_) {
      dropout_.load(scratch.pair, tile.head, pair);
      dropout_.apply(ds, p, scratch.pair, pair.n);
    }
    const T* const kept = dropout_ ? ds : p;
    T *const dv = scratch.dv + at * scratch.v_width, *const dk = scratch.dk + at * scratch.width;
    sum_over_queries<T>(dv, scratch.v_width, pair, kept, tile.dout_rows);
    if (tile.careful) add_queries(dv, scratch.v_width, pair, kept, dout_, tile, scratch);
    scores<T>(ds, pair, v_[kv_head].from(j0, 0), scratch.dout_lanes, size_.dv);
    if (dropout_) dropout_.apply(ds, ds, scratch.pair, pair.n);
    map_scores<T>(pair, ds, [&](T dp, bool sees, int64_t j, int i) {
      return sees ? p[j * kQ + i] * (dp - mean[i]) : T(0);
    });
    if (mask_) mask_.clear(ds, scratch.pair, pair.n);
    if (dmask_) dmask_.add(ds, tile.head, pair, scratch.dmask);
    sum_over_keys<T>(scratch.dq, scratch.width, pair, ds, tile.k_rows.from(at), !first);
    sum_over_queries<T>(dk, scratch.width, pair, ds, tile.q_rows);
    if (!tile.careful) return;
    add_queries(dk, scratch.width, pair, ds, q_, tile, scratch);
    const Strided<const T> of_keys{ds, 1, kQ};
    add_not_finite(scratch.dq.data, scratch.width, pair.rows, of_keys, k_[kv_head].from(j0, 0),
                   pair.n, size_.d,
                   [&](int64_t i, int64_t j) { return mask_.shows(scratch.pair, pair, i, j); });
  }
  // Adds what sum_over_queries leaves out of x's rows.
  void add_queries(T* sums, int64_t width, const Pair<T>& pair, const T* p, const Heads<const T>& x,
                   const Tile& tile, const Scratch& scratch) const {
    const Strided<const T> weights{p, kQueries<T>, 1};
    add_not_finite(sums, width, pair.n, weights, x[tile.head].from(pair.i0, 0), pair.rows,
                   x.tensor.size(-1),
                   [&](int64_t j, int64_t i) { return mask_.shows(scratch.pair, pair, i, j); });
  }

  T* part(int64_t slice, int64_t head, int64_t i) const {
    return parts_ + ((slice * size_.heads + head) * size_.queries + i) * size_.d;
  }
  void store_dq(int64_t slice, const Tile& tile, const Scratch& scratch) const {
    const Strided<T> to =
        slices_ > 1 ? Strided<T>{part(slice, tile.head, 0), size_.d, 1} : dq_[tile.head];
    store_rows<T>(to.from(tile.i0, 0), tile.rows, size_.d, scratch.dq, scratch.width,
                  [&](int64_t) { return scale_; });
  }
  void add_parts() const {
    parallel_for(size_.heads * size_.queries, kGrain / (slices_ * size_.d + 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t head = row / size_.queries, i = row % size_.queries;
                     T* sum = part(0, head, i);
                     for (int64_t slice = 1; slice < slices_; ++slice) {
                       const T* more = part(slice, head, i);
                       for (int64_t c = 0; c < size_.d; ++c) sum[c] += more[c];
                     }
                     store_rows<T>(dq_[head].from(i, 0), 1, size_.d, sum, 0,
                                   [](int64_t) { return T(1); });
                   }
                 });
  }

  const Sizes size_;
  const T scale_;
  const int64_t kv_heads_, slices_;
  const Buffer<T> parts_;
  const Heads<const T> q_, k_, v_, out_, dout_;
  const T* const lse_;
  const Heads<T> dq_, dk_, dv_;
  const Mask<T> mask_;
  const MaskGradient<T> dmask_;
  const WeightDropout<T> dropout_;
};

}  // namespace

void attention_backward(AttentionGradients d, const Array& dout, const Array& out, const Array& lse,
                        const AttentionInputs& in) {
  const auto& [q, k, v, mask, rule] = in;
  auto& [dq, dk, dv, dmask] = d;
  if (q.dtype() == f64) return Backward<double>(d, dout, out, lse, in).run();
  if (q.dtype() == f32) return Backward<float>(d, dout, out, lse, in).run();
  if (suits_attention_bf16(in)) return attention_bf16_backward(d, dout, out, lse, in);
  AttentionGradients wide{f32_like(dq), f32_like(dk), f32_like(dv), dmask};
  attention_backward(wide, in_f32(dout), in_f32(out), lse,
                     {in_f32(q), in_f32(k), in_f32(v), mask, rule});
  copy(dq, wide.dq);
  copy(dk, wide.dk);
  copy(dv, wide.dv);
}

}  // namespace ink::cpu
