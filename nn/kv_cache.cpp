#include "nn/kv_cache.h"
#include "autograd/more_ops.h"

namespace ink {
namespace {

Tensor with_room(const Tensor& x, int64_t capacity) {
  Shape shape = x.shape();
  shape[x.dim() - 2] = capacity;
  return empty(shape, x.options());
}

// Are the sizes equal except for the number of tokens?
bool fits(const Tensor& memory, const Tensor& x) {
  Shape shape = x.shape();
  if (x.dim() >= 2) shape[x.dim() - 2] = memory.size(-2);
  return shape == memory.shape() && x.dtype() == memory.dtype();
}

}  // namespace

KVCache::KVCache(const KVCache& other) : capacity_(other.capacity_), size_(other.size_) {
  if (size_ == 0) return;
  keys_ = other.keys_.clone();
  values_ = other.values_.clone();
}

std::pair<Tensor, Tensor> KVCache::append(const Tensor& k, const Tensor& v) {
  INK_CHECK(k.dim() >= 2 && v.dim() == k.dim() && k.size(-2) == v.size(-2),
            "kv_cache: expected k (..., n, d) and v (..., n, dv), got ", k.shape(), " and ",
            v.shape());
  INK_CHECK(!grad_enabled() || !(k.requires_grad() || v.requires_grad()),
            "kv_cache: keys and values are written over and cannot be in a graph; use NoGrad");
  const int64_t n = k.size(-2);
  INK_CHECK(size_ + n <= capacity_, "kv_cache: ", size_, " + ", n,
            " tokens are more than its capacity of ", capacity_);
  if (size_ == 0) {  // the first of a batch
    if (!keys_.defined() || !fits(keys_, k)) keys_ = with_room(k, capacity_);
    if (!values_.defined() || !fits(values_, v)) values_ = with_room(v, capacity_);
  }
  INK_CHECK(fits(keys_, k) && fits(values_, v), "kv_cache: holds ", keys_.shape(), " and ",
            values_.shape(), ", to which ", k.shape(), " and ", v.shape(), " cannot be appended");
  const NoGrad no_grad;
  keys_.narrow(-2, size_, n).copy_(k);
  values_.narrow(-2, size_, n).copy_(v);
  size_ += n;
  return {keys_.narrow(-2, 0, size_), values_.narrow(-2, 0, size_)};
}

void KVCache::crop(int64_t n) {
  INK_CHECK(n >= 0 && n <= size_, "kv_cache: expected to keep 0 to ", size_, " tokens, got ", n);
  size_ = n;
}

void KVCache::select(const Tensor& ids) {
  if (size_ == 0) return;
  const NoGrad no_grad;
  keys_ = index_select(keys_, 0, ids);
  values_ = index_select(values_, 0, ids);
}

}  // namespace ink
