// KVCache: the keys and values of earlier tokens, for attention.
#pragma once

#include <utility>

#include "autograd/basic_ops.h"

namespace ink {

/// Keys and values of the tokens so far, (..., T, d) each. With them the next token needs one row
/// of queries, and nothing is computed again for the others:
///
///   KVCache cache(128);
///   const NoGrad no_grad;
///   y = attn(prompt, &cache);      // (B, T, C)
///   y = attn(next, &cache);        // (B, 1, C), as the last row of attn(cat({prompt, next}, 1))
///
/// The memory is allocated once, at the first append, for `capacity` tokens and that batch. A copy
/// has memory of its own, so that one prompt can be continued in several ways.
class KVCache {
 public:
  explicit KVCache(int64_t capacity) : capacity_(capacity) {
    INK_CHECK(capacity > 0, "kv_cache: expected a capacity above 0, got ", capacity);
  }

  KVCache(const KVCache& other);
  KVCache(KVCache&& other) noexcept { *this = std::move(other); }
  KVCache& operator=(const KVCache& other) { return *this = KVCache(other); }
  KVCache& operator=(KVCache&& other) noexcept {
    capacity_ = other.capacity_;
    size_ = std::exchange(other.size_, 0);
    keys_ = std::move(other.keys_);
    values_ = std::move(other.values_);
    return *this;
  }

  /// The number of tokens so far, and the most.
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }

  /// Appends k (..., n, d) and v (..., n, dv). Returns all keys and values, (..., T, d) and (...,
  /// T, dv), as views that stay right until crop() and another append. There are no gradients.
  /// Throws if k or v is in a graph, if n more do not fit, or if the other sizes change.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v);

  /// Forgets all but the first n tokens. After n = 0, another batch may follow.
  void crop(int64_t n);

  /// Keeps the given rows of the batch (dimension 0), in this order: ids (n,) i64. For searches
  /// that follow several continuations.
  void select(const Tensor& ids);

 private:
  int64_t capacity_ = 0, size_ = 0;
  Tensor keys_, values_;  // (..., capacity, d), of which the first size_ are filled
};

}  // namespace ink
