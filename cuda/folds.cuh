// Reductions by the operations of autograd/loops/folds.h.
#pragma once

#include "autograd/loops/folds.h"
#include "cuda/reduce.cuh"

namespace ink::cuda {

/// A reduction by one operation, F::join. Elements that are read together are joined as F::Near,
/// and the results as F::Far. Far is double for sums of floats, so that the error does not grow
/// with the length.
template <class F, class T>
struct Fold {
  using Acc = typename F::Far;
  __device__ static Acc none() { return F::none(); }
  template <int K>
  __device__ static void take(Acc& acc, const T (&x)[K], int64_t, int64_t) {
    typename F::Near values[K];
#pragma unroll
    for (int k = 0; k < K; ++k) values[k] = F::load(x[k]);
#pragma unroll
    for (int half = K / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) values[k] = F::join(values[k], values[k + half]);
    }
    merge(acc, static_cast<Acc>(values[0]));
  }
  __device__ static void merge(Acc& acc, const Acc& other) { acc = F::join(acc, other); }
  __device__ static void repeat(Acc& acc, int64_t times) { acc = F::repeated(acc, times); }
};

}  // namespace ink::cuda
