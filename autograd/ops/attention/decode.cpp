// For each query, a product of the keys with it and one of its weights with the values. Each key
// and value is read once, where the tiles of forward.cpp would leave most of their lanes idle.

#include <vector>

#include "autograd/base/context.h"
#include "autograd/gemm/vector_product.h"
#include "autograd/loops/rows.h"
#include "autograd/ops/attention/tiles.h"
#include "autograd/ops/attention/ways.h"

namespace ink::cpu {
namespace {

using tiles::Heads, tiles::Sizes;

template <class T>
class Decode {
 public:
  Decode(Array& out, Array& lse, const AttentionInputs& in)
      : size_(in.q, in.k, in.v, in.rule),
        scale_(static_cast<C>(in.rule.scale)),
        q_(in.q),
        k_(in.k),
        v_(in.v),
        out_(out),
        lse_(lse.mutable_data<C>()) {}

  void run() const {
    const int64_t work = size_.queries * size_.keys * (size_.d + size_.dv);
    parallel_for(size_.heads, 4 * kGrain / (work + 1) + 1, [&](int64_t begin, int64_t end) {
      std::vector<C> memory(static_cast<size_t>(size_.keys + size_.dv));
      for (int64_t head = begin; head < end; ++head) {
        for (int64_t i = 0; i < size_.queries; ++i) run_query(head, i, memory.data());
      }
    });
  }

 private:
  using C = compute_t<T>;

  void run_query(int64_t head, int64_t i, C* weights) const {
    const int64_t first = size_.first_seen(i), n = size_.seen(i + 1) - first;
    const int64_t kv_head = head / size_.group;
    const Strided<const T> keys = k_[kv_head].from(first, 0), values = v_[kv_head].from(first, 0);
    C* sums = weights + size_.keys;
    dot_rows<C>(keys.data, keys.row, q_[head].from(i, 0).data, size_.d, weights, n);
    const auto weight = [weights](int64_t j) { return weights[j]; };
    for (int64_t j = 0; j < n; ++j) weights[j] *= scale_;
    const C top = max_of<C>(n, weight);
    for (int64_t j = 0; j < n; ++j) weights[j] = simd::exp_nonpositive(weights[j] - top);
    const C total = sum_of<C>(n, weight);
    add_rows<C>(values.data, values.row, weights, n, sums, size_.dv);
    const Strided<T> out = out_[head].from(i, 0);
    for (int64_t c = 0; c < size_.dv; ++c)
      out.data[c * out.col] = static_cast<T>(n > 0 ? sums[c] / total : 0);
    lse_[head * size_.queries + i] = top + simd::log(total);
  }

  const Sizes size_;
  const C scale_;
  const Heads<const T> q_, k_, v_;
  const Heads<T> out_;
  C* const lse_;
};

}  // namespace

bool suits_attention_decode(const AttentionInputs& in) {
  const int64_t most_queries = context().strict ? in.q.size(-2) : 4;
  const auto rows = [](const Array& x) { return x.size(-1) == 1 || x.strides()[x.dim() - 1] == 1; };
  return in.q.size(-2) <= most_queries && !in.mask.defined() && in.rule.dropout_p == 0 &&
         rows(in.q) && rows(in.k) && rows(in.v);
}

void attention_decode(Array& out, Array& lse, const AttentionInputs& in) {
  for_float("attention", in.q.dtype(), [&]<class T>(T) { Decode<T>(out, lse, in).run(); });
}

}  // namespace ink::cpu
