// Scaled dot-product attention of queries q (..., T, d), keys k (..., S, d), values v (..., S, dv).
//   p_ij = softmax over j of scale q_i . k_j   (causal: over j <= i),   out_i = sum_j p_ij v_j
//   dv_j = sum_i p_ij dout_i,   ds_ij = p_ij (dout_i . v_j - dout_i . out_i)
//   dq_i = scale sum_j ds_ij k_j,   dk_j = scale sum_i ds_ij q_i
// Neither pass holds more scores than those of two tiles; backward computes p again from the saved
// log-sum-exp: p_ij = exp(scale q_i . k_j - lse_i). Dao et al. 2022, algorithms 1 and 4.
#include <numeric>

#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/attention_tiles.h"

namespace ink {

namespace cpu {
namespace {

using namespace tiles;

template <class T>
class Forward {
 public:
  Forward(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
          bool is_causal, double scale)
      : size_(q, k, v, is_causal),
        scale_(static_cast<T>(scale)),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        lse_(lse.mutable_data<T>()) {}

  void run() const {
    const int64_t tiles = (size_.queries + kQueries<T> - 1) / kQueries<T>;
    for_each_with_scratch<Scratch>(size_.heads * tiles, size_, [&](int64_t item, auto& scratch) {
      // Short and long causal tiles take turns, so that equal numbers of them are equal work.
      const int64_t at = item % tiles, tile = at % 2 ? tiles - 1 - at / 2 : at / 2;
      run_tile(item / tiles, tile * kQueries<T>, scratch);
    });
  }

 private:
  struct Scratch {
    Buffer<T> q_lanes, s, v_rows, sums;
    explicit Scratch(const Sizes& size)
        : q_lanes(size.d * kQueries<T>),
          s(kKeys * kQueries<T>),
          v_rows(kKeys * whole_vectors<T>(size.dv)),
          sums(kQueries<T> * whole_vectors<T>(size.dv)) {}
  };

  void run_tile(int64_t head, int64_t i0, const Scratch& scratch) const {
    constexpr int64_t kQ = kQueries<T>;
    const int64_t rows = std::min(kQ, size_.queries - i0), end = size_.seen(i0 + rows);
    const int64_t width = whole_vectors<T>(size_.dv);
    const Strided<const T> k = k_[head], v = v_[head];
    const Strided<T> out = out_[head];
    T top[kQ], total[kQ] = {}, shrink[kQ], lse[kQ];
    std::fill_n(top, kQ, -std::numeric_limits<T>::infinity());
    load_lanes<T>(scratch.q_lanes, q_[head].from(i0, 0), rows, size_.d, scale_);
    for (int64_t j0 = 0; j0 < end; j0 += kKeys) {
      const Pair<T> pair{i0, j0, rows, std::min(kKeys, end - j0), size_.causal};
      scores<T>(scratch.s, pair, k.from(j0, 0), scratch.q_lanes, size_.d);
      weights<T>(scratch.s, pair, top, total, shrink);
      for (int64_t i = 0; i < rows && j0 > 0; ++i) {
        for (int64_t c = 0; c < width; ++c) scratch.sums[i * width + c] *= shrink[i];
      }
      const Rows<T> v_rows = vector_rows<T>(scratch.v_rows, v.from(j0, 0), pair.n, size_.dv);
      sum_over_keys<T>(scratch.sums, width, pair, scratch.s, v_rows, j0 > 0);
    }
    for (int64_t i = 0; i < kQ; ++i) lse[i] = top[i] + simd::log(total[i]);
    std::copy_n(lse, rows, lse_ + head * size_.queries + i0);
    store_rows<T>(out.from(i0, 0), rows, size_.dv, scratch.sums, width,
                  [&](int64_t i) { return 1 / total[i]; });
  }

  const Sizes size_;
  const T scale_;
  const Heads<const T> q_, k_, v_;
  const Heads<T> out_;
  T* const lse_;
};

// A head's keys are cut into slices, to be worked on side by side, when there are few heads. dK and
// dV of the slices are apart; dQ is the sum of one part a slice.
template <class T>
class Backward {
 public:
  Backward(Tensor& dq, Tensor& dk, Tensor& dv, const Tensor& dout, const Tensor& out,
           const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal,
           double scale)
      : size_(q, k, v, is_causal),
        scale_(static_cast<T>(scale)),
        slices_(size_.heads >= 4 * max_threads()
                    ? 1
                    : max_threads() / std::gcd(size_.heads, max_threads())),
        parts_(slices_ > 1 ? slices_ * size_.heads * size_.queries * size_.d : 0),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        dout_(dout),
        lse_(lse.data<T>()),
        dq_(dq),
        dk_(dk),
        dv_(dv) {}

  void run() const {
    for_each_with_scratch<Scratch>(size_.heads * slices_, size_, [&](int64_t item, auto& scratch) {
      run_slice(item / slices_, item % slices_, scratch);
    });
    if (slices_ > 1) add_parts();
  }

 private:
  struct Scratch {
    int64_t width, v_width;  // d and dv in whole vectors
    Buffer<T> q_lanes, dout_lanes, out_lanes, q_rows, dout_rows, k_rows, p, ds, dq, dk, dv;

    explicit Scratch(const Sizes& size)
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
          dv(size.keys * v_width) {}
  };

  // A causal key is seen by all later queries: slices of equal work are equal areas of a triangle.
  int64_t slice_begin(int64_t slice) const {
    const double part = static_cast<double>(slice) / static_cast<double>(slices_);
    const double share = size_.causal ? 1 - std::sqrt(1 - part) : part;
    return std::min(size_.keys, whole_vectors<T>(
                                    static_cast<int64_t>(share * static_cast<double>(size_.keys))));
  }

  void run_slice(int64_t head, int64_t slice, const Scratch& scratch) const {
    const int64_t begin = slice_begin(slice), end = slice_begin(slice + 1);
    const Rows<T> k_rows =
        vector_rows<T>(scratch.k_rows, k_[head].from(begin, 0), end - begin, size_.d);
    std::fill_n(scratch.dk.data, (end - begin) * scratch.width, T(0));
    std::fill_n(scratch.dv.data, (end - begin) * scratch.v_width, T(0));
    for (int64_t i0 = 0; i0 < size_.queries; i0 += kQueries<T>) {
      const int64_t rows = std::min(kQueries<T>, size_.queries - i0);
      const int64_t seen = std::min(end, size_.seen(i0 + rows));
      if (seen > begin) {
        run_tile(head, i0, rows, begin, seen, k_rows, scratch);
      } else {
        std::fill_n(scratch.dq.data, rows * scratch.width, T(0));
      }
      store_dq(head, slice, i0, rows, scratch);
    }
    store_rows<T>(dk_[head].from(begin, 0), end - begin, size_.d, scratch.dk, scratch.width,
                  [&](int64_t) { return scale_; });
    store_rows<T>(dv_[head].from(begin, 0), end - begin, size_.dv, scratch.dv, scratch.v_width,
                  [](int64_t) { return T(1); });
  }

  // One tile of queries against keys begin ... seen: dq, and its share of dk and dv.
  void run_tile(int64_t head, int64_t i0, int64_t rows, int64_t begin, int64_t seen, Rows<T> k_rows,
                const Scratch& scratch) const {
    constexpr int64_t kQ = kQueries<T>;
    const Strided<const T> q = q_[head].from(i0, 0), dout = dout_[head].from(i0, 0), k = k_[head],
                           v = v_[head];
    load_lanes<T>(scratch.q_lanes, q, rows, size_.d, scale_);
    load_lanes<T>(scratch.dout_lanes, dout, rows, size_.dv, 1);
    const Rows<T> q_rows = vector_rows<T>(scratch.q_rows, q, rows, size_.d),
                  dout_rows = vector_rows<T>(scratch.dout_rows, dout, rows, size_.dv);
    load_lanes<T>(scratch.out_lanes, out_[head].from(i0, 0), rows, size_.dv, 1);
    T lse[kQ] = {}, mean[kQ] = {};  // mean: of dout_i . v_j under p_ij, which is dout_i . out_i
    std::copy_n(lse_ + head * size_.queries + i0, rows, lse);
    for (int64_t c = 0; c < size_.dv; ++c) {
      for (int64_t i = 0; i < kQ; ++i)
        mean[i] += scratch.dout_lanes[c * kQ + i] * scratch.out_lanes[c * kQ + i];
    }
    for (int64_t j0 = begin; j0 < seen; j0 += kKeys) {
      const Pair<T> pair{i0, j0, rows, std::min(kKeys, seen - j0), size_.causal};
      scores<T>(scratch.p, pair, k.from(j0, 0), scratch.q_lanes, size_.d);
      map_scores<T>(pair, scratch.p, [&](T s, bool sees, int64_t, int i) {
        return sees ? simd::exp_nonpositive(s - lse[i]) : T(0);
      });
      sum_over_queries<T>(scratch.dv + (j0 - begin) * scratch.v_width, scratch.v_width, pair,
                          scratch.p, dout_rows);
      scores<T>(scratch.ds, pair, v.from(j0, 0), scratch.dout_lanes, size_.dv);
      map_scores<T>(pair, scratch.ds, [&](T dp, bool sees, int64_t j, int i) {
        return sees ? scratch.p[j * kQ + i] * (dp - mean[i]) : T(0);
      });
      sum_over_keys<T>(scratch.dq, scratch.width, pair, scratch.ds, k_rows.from(j0 - begin),
                       j0 > begin);
      sum_over_queries<T>(scratch.dk + (j0 - begin) * scratch.width, scratch.width, pair,
                          scratch.ds, q_rows);
    }
  }

  T* part(int64_t slice, int64_t head, int64_t i) const {
    return parts_ + ((slice * size_.heads + head) * size_.queries + i) * size_.d;
  }
  void store_dq(int64_t head, int64_t slice, int64_t i0, int64_t rows,
                const Scratch& scratch) const {
    const Strided<T> to = slices_ > 1 ? Strided<T>{part(slice, head, 0), size_.d, 1} : dq_[head];
    store_rows<T>(to.from(i0, 0), rows, size_.d, scratch.dq, scratch.width,
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
  const int64_t slices_;
  const Buffer<T> parts_;
  const Heads<const T> q_, k_, v_, out_, dout_;
  const T* const lse_;
  const Heads<T> dq_, dk_, dv_;
};

// bf16 runs in f32.
Tensor in_f32(const Tensor& x) {
  Tensor y = empty(x.shape(), {f32, x.device()});
  copy(y, x);
  return y;
}

}  // namespace

void attention(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
               bool is_causal, double scale) {
  if (out.numel() == 0 || k.size(-2) == 0) return fill(out, 0);
  if (q.dtype() == f64) return Forward<double>(out, lse, q, k, v, is_causal, scale).run();
  if (q.dtype() == f32) return Forward<float>(out, lse, q, k, v, is_causal, scale).run();
  Tensor wide = empty(out.shape(), {f32, out.device()});
  attention(wide, lse, in_f32(q), in_f32(k), in_f32(v), is_causal, scale);
  copy(out, wide);
}

void attention_backward(Tensor& dq, Tensor& dk, Tensor& dv, const Tensor& dout, const Tensor& out,
                        const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                        bool is_causal, double scale) {
  if (q.dtype() == f64)
    return Backward<double>(dq, dk, dv, dout, out, lse, q, k, v, is_causal, scale).run();
  if (q.dtype() == f32)
    return Backward<float>(dq, dk, dv, dout, out, lse, q, k, v, is_causal, scale).run();
  Tensor wide[] = {empty(dq.shape(), f32), empty(dk.shape(), f32), empty(dv.shape(), f32)};
  attention_backward(wide[0], wide[1], wide[2], in_f32(dout), in_f32(out), lse, in_f32(q),
                     in_f32(k), in_f32(v), is_causal, scale);
  copy(dq, wide[0]);
  copy(dk, wide[1]);
  copy(dv, wide[2]);
}

}  // namespace cpu

namespace {

// x (..., H_kv, S, d) with each head repeated `times` times, one after the other: a view if once.
Tensor repeat_heads(const Tensor& x, int64_t times) {
  if (times == 1) return x;
  const int64_t heads = x.dim() - 3;
  Shape sizes = x.shape();
  sizes.insert(heads + 1, times);
  const Tensor repeated = expand(x.unsqueeze(heads + 1), sizes);
  sizes.erase(heads + 1);
  sizes[heads] *= times;
  return reshape(repeated, sizes);
}

// What the options say about a problem, with defaults filled in and the mask in a floating dtype of
// its scores, or bool.
struct Problem {
  AttentionRule rule;
  Tensor mask;
  int64_t group;  // query heads that share a key's head
  DType dtype;    // of the scores
  bool masked;    // may a query see less than all keys?
};

// The scale, the mask and the softmax of the formula, then dropout.
Tensor weights_composed(const Tensor& q, const Tensor& k, const Problem& problem) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const auto& [rule, mask, group, dtype, masked] = problem;
  const Tensor keys = repeat_heads(k.to(dtype), group);
  Tensor s = matmul(q.to(dtype), transpose(keys, -2, -1)) * rule.scale;
  if (mask.defined() && mask.is_floating()) {
    s = masked_fill(s + mask, mask == kNever, kNever);  // -inf whatever the score, be it NaN
  } else if (mask.defined()) {
    s = masked_fill(s, logical_not(mask), kNever);
  }
  if (rule.diagonal < k.size(-2)) {
    const Tensor i = arange(static_cast<double>(q.size(-2)), {i64, q.device()}),
                 j = arange(static_cast<double>(k.size(-2)), {i64, q.device()});
    s = masked_fill(s, j > (i + static_cast<double>(rule.diagonal)).unsqueeze(1), kNever);
  }
  Tensor p = softmax(s);
  if (masked && !context().imitate_torch) {  // softmax of nothing is 0 / 0
    const Tensor none = all(s == kNever, {-1}, true);
    p = masked_fill(softmax(masked_fill(s, none, 0)), none, 0);
  }
  return dropout(p, rule.dropout_p);
}

Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Problem& problem) {
  const Tensor values = repeat_heads(v.to(problem.dtype), problem.group);
  return matmul(weights_composed(q, k, problem), values).to(q.dtype());
}

// Shapes but for dimension -3, -2 and -1.
Shape batch_shape(const Tensor& x) {
  Shape shape = x.shape();
  for (int64_t d = 1; d <= std::min<int64_t>(x.dim(), 3); ++d) shape[x.dim() - d] = 1;
  return shape;
}
int64_t head_count(const Tensor& x) { return x.dim() < 3 ? 1 : x.size(-3); }

// k stands for v, too, where there is none.
void check_shapes(const char* op, const Tensor& q, const Tensor& k, const Tensor& v) {
  INK_CHECK(q.dim() >= 2 && k.dim() == q.dim() && v.dim() == q.dim() &&
                batch_shape(q) == batch_shape(k) && batch_shape(q) == batch_shape(v) &&
                head_count(k) == head_count(v) && q.size(-1) == k.size(-1) &&
                k.size(-2) == v.size(-2),
            op, ": expected q (..., T, d), k (..., S, d) and v (..., S, dv), got ", q.shape(), ", ",
            k.shape(), " and ", v.shape());
  const int64_t heads = head_count(q), kv_heads = head_count(k);
  INK_CHECK(kv_heads == 0 ? heads == 0 : heads % kv_heads == 0, op,
            ": expected the heads of q, dimension -3, to be a multiple of those of k and v, got ",
            heads, " and ", kv_heads);
  INK_CHECK(q.is_floating() && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op,
            ": expected one floating dtype, got ", q.dtype(), ", ", k.dtype(), " and ", v.dtype());
}

void check_options(const char* op, const Shape& scores, const AttentionOptions& options) {
  const double p = options.dropout_p;
  INK_CHECK(p >= 0 && p <= 1, op, ": expected dropout_p in [0, 1], got ", p);
  const Tensor& mask = options.attn_mask;
  if (!mask.defined()) return;
  INK_CHECK(mask.is_floating() || mask.dtype() == DType::boolean, op,
            ": expected a bool or floating attn_mask, got ", mask.dtype());
  bool fits = mask.dim() <= scores.size();
  for (int64_t d = 1; fits && d <= mask.dim(); ++d)
    fits = mask.size(-d) == 1 || mask.size(-d) == scores[scores.size() - d];
  INK_CHECK(fits, op, ": expected an attn_mask that broadcasts to ", scores, ", got ",
            mask.shape());
}

Problem checked(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionOptions& options) {
  check_shapes(op, q, k, v);
  Shape scores = q.shape();
  scores.back() = k.size(-2);
  check_options(op, scores, options);
  const int64_t queries = q.size(-2), keys = k.size(-2);
  const double d = static_cast<double>(std::max<int64_t>(q.size(-1), 1));
  Problem problem{{options.scale.value_or(1 / std::sqrt(d)), keys, options.dropout_p, {}},
                  options.attn_mask,
                  head_count(q) / std::max<int64_t>(head_count(k), 1),
                  q.dtype() == f64 ? f64 : f32,
                  options.attn_mask.defined() || options.is_causal || options.causal_lower_right};
  int64_t& diagonal = problem.rule.diagonal;
  if (options.is_causal) diagonal = std::min<int64_t>(diagonal, 0);
  if (options.causal_lower_right) diagonal = std::min(diagonal, keys - queries);
  if (problem.mask.defined() && problem.mask.is_floating())
    problem.mask = problem.mask.to(problem.dtype);
  return problem;
}

}  // namespace

namespace {

// Uninitialised, with the sizes of x but for the last, and its dimensions in memory in x's order:
// heads that were split off a row stay side by side in it, and can be joined without a copy.
Tensor empty_in_order_of(const Tensor& x, int64_t last) {
  std::vector<int64_t> order(static_cast<size_t>(x.dim() - 1));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; });
  order.push_back(x.dim() - 1);
  Layout layout{x.shape(), x.strides(), 0};
  layout.sizes.back() = last;
  int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    layout.strides[*d] = stride;
    stride *= std::max<int64_t>(layout.sizes[*d], 1);
  }
  return Tensor(empty({layout.sizes.numel()}, x.options()).storage(), layout, x.dtype());
}

// The distance of q, k and v in memory when together they fill one buffer, as heads of a packed
// (B, T, 3 C) do; 0 otherwise.
int64_t packed_step(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t step = k.layout().offset - q.layout().offset;
  const bool alike = q.storage() == k.storage() && q.storage() == v.storage() &&
                     q.shape() == k.shape() && q.shape() == v.shape() &&
                     q.strides() == k.strides() && q.strides() == v.strides();
  if (!alike || step <= 0 || v.layout().offset - k.layout().offset != step) return 0;
  std::vector<std::pair<int64_t, int64_t>> dims{{step, 3}};  // stride, size
  for (int64_t d = 0; d < q.dim(); ++d) {
    if (q.shape()[d] != 1) dims.emplace_back(q.strides()[d], q.shape()[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return 0;
    expected *= size;
  }
  return step;
}

// Where dq, dk and dv go: into one buffer if q, k and v came from one, so that the gradient of the
// split is that buffer.
Grads empty_gradients(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t step = packed_step(q, k, v);
  if (step == 0)
    return {empty_in_order_of(q, q.size(-1)), empty_in_order_of(k, k.size(-1)),
            empty_in_order_of(v, v.size(-1))};
  const Tensor buffer = empty({3 * q.numel()}, q.options());
  Grads grads;
  for (int64_t i = 0; i < 3; ++i)
    grads.emplace_back(buffer.storage(), Layout{q.shape(), q.strides(), i * step}, q.dtype());
  return grads;
}

}  // namespace

Tensor attention_weights(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  const Problem problem = checked("attention_weights", q, k, k, options);
  return weights_composed(q, k, problem).to(q.dtype());
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  const Problem problem = checked("scaled_dot_product_attention", q, k, v, options);
  const bool causal = options.is_causal && q.size(-2) == k.size(-2);
  const bool plain = !problem.mask.defined() && options.dropout_p == 0 && problem.group == 1 &&
                     (causal || !problem.masked);
  if (composed() || context().imitate_torch || !plain) return attention_composed(q, k, v, problem);
  const double scale = problem.rule.scale;
  Tensor out = empty_in_order_of(q, v.size(-1));
  Shape rows = q.shape();
  rows.erase(q.dim() - 1);
  Tensor lse = empty(rows, {q.dtype() == f64 ? f64 : f32, q.device()});
  kernel::attention(out, lse, q, k, v, causal, scale);
  return record_fused("scaled_dot_product_attention", {q, k, v}, out,
                      [q = Saved::input(q), k = Saved::input(k), v = Saved::input(v),
                       out = Saved::output(out), lse, causal, scale](const Tensor& dout) -> Grads {
                        Grads grads = empty_gradients(*q, *k, *v);
                        kernel::attention_backward(grads[0], grads[1], grads[2], dout, *out, lse,
                                                   *q, *k, *v, causal, scale);
                        return grads;
                      });
}

}  // namespace ink
