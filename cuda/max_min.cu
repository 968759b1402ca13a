// max, min, argmax, argmin along a dimension: the twin of autograd/ops/max_min.cpp.
#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

// The best element so far and its index; of equal elements the first. NaN is better than any
// number.
template <class T, bool largest>
struct Best {
  using Value = compute_t<T>;
  struct Acc {
    Value value;
    int64_t at;  // negative: none yet
  };
  __device__ static Acc none() { return {Value(), -1}; }
  template <int K>
  __device__ static void take(Acc& acc, const T (&x)[K], int64_t at, int64_t step) {
#pragma unroll
    for (int k = 0; k < K; ++k) merge(acc, {static_cast<Value>(x[k]), at + k * step});
  }
  __device__ static void merge(Acc& acc, const Acc& other) {
    if (other.at < 0) return;
    const bool worse = acc.at < 0 || better<largest>(other.value, acc.value);
    if (worse || (!better<largest>(acc.value, other.value) && other.at < acc.at)) acc = other;
  }
  __device__ static void repeat(Acc&, int64_t) {}
};

template <class T>
struct StoreBest {
  T* values;
  int64_t* indices;
  template <class Acc>
  __device__ void operator()(int64_t i, const Acc& best) const {
    values[i] = static_cast<T>(best.value);
    indices[i] = best.at;
  }
};

}  // namespace

void arg_reduce(Array& values, Array& indices, const Array& x, int64_t, bool largest) {
  for_any(x.dtype(), [&]<class T>(T) {
    const StoreBest<T> store{values.mutable_data<T>(), indices.mutable_data<int64_t>()};
    for_bool(largest, [&](auto max) {
      reduce_loop<Best<T, max()>, T>(max ? "max" : "min", values, x, store);
    });
  });
}

}  // namespace ink::cuda
