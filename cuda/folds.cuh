// What reductions of numbers compute: the twins of the folds in autograd/ops/reduce.cpp.
#pragma once

#include <limits>
#include <type_traits>

#include "cuda/reduce.cuh"

namespace ink::cuda {

/// A reduction by one operation, F::join: of elements that are read together as F::Near, of all as
/// F::Far. Floats are summed far in double, so that a sum's error does not grow with its length.
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

template <class T>
using wide_t = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

template <class T>
struct Sum {
  using Near = std::conditional_t<std::is_same_v<T, bool>, int64_t, compute_t<T>>;
  using Far = wide_t<T>;
  __device__ static Near load(T x) { return static_cast<Near>(x); }
  __device__ static Far none() { return 0; }
  template <class V>
  __device__ static V join(V a, V b) {
    return a + b;
  }
  __device__ static Far repeated(Far a, int64_t times) { return a * static_cast<Far>(times); }
};

template <class T>
struct Product {
  using Near = wide_t<T>;
  using Far = wide_t<T>;
  __device__ static Near load(T x) { return static_cast<Near>(static_cast<compute_t<T>>(x)); }
  __device__ static Far none() { return 1; }
  __device__ static Far join(Far a, Far b) { return a * b; }
  __device__ static Far repeated(Far a, int64_t times) {
    Far result = 1;  // by squaring
    for (; times > 0; times /= 2, a *= a) {
      if (times % 2) result *= a;
    }
    return result;
  }
};

/// NaN if any is. Of bools, the largest is any and the smallest all.
template <class T>
struct Largest {
  using Near = std::conditional_t<std::is_same_v<T, bool>, uint8_t, compute_t<T>>;
  using Far = Near;
  using Limits = std::numeric_limits<Near>;
  __device__ static Near load(T x) { return static_cast<Near>(x); }
  __device__ static Far none() {
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  __device__ static Far join(Far a, Far b) { return a != a || a > b ? a : b; }
  __device__ static Far repeated(Far a, int64_t) { return a; }
};

template <class T>
struct Smallest : Largest<T> {
  using typename Largest<T>::Far, typename Largest<T>::Limits;
  __device__ static Far none() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
  __device__ static Far join(Far a, Far b) { return a != a || a < b ? a : b; }
};

}  // namespace ink::cuda
