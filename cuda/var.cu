// var, std: the twin of autograd/ops/var.cpp.
#include <algorithm>
#include <cmath>

#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

// Count, mean and the sum of squared distances from the mean, in one pass and without cancellation.
// Chan, Golub, LeVeque 1979, eq. 2.1.
template <class T>
struct Moments {
  struct Acc {
    double count, mean, m2;
  };
  __device__ static Acc none() { return {0, 0, 0}; }
  __device__ static void merge(Acc& a, const Acc& b) {
    if (b.count == 0) return;  // distances of large means are infinite, and times 0 NaN
    const double count = a.count + b.count, share = b.count / count;
    const double apart = b.mean - a.mean, mean = a.mean + apart * share;
    a = {count, mean, a.m2 + b.m2 + apart * (b.mean - mean) * b.count};
  }
  template <int K>
  __device__ static void take(Acc& acc, const T (&x)[K], int64_t, int64_t) {
    // Of equal numbers, the mean is exactly that number.
    const double first = static_cast<double>(static_cast<compute_t<T>>(x[0]));
    double mean = first, m2 = 0;
#pragma unroll
    for (int k = 1; k < K; ++k)
      mean += (static_cast<double>(static_cast<compute_t<T>>(x[k])) - first) / K;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const double apart = static_cast<double>(static_cast<compute_t<T>>(x[k])) - mean;
      m2 += apart * apart;
    }
    merge(acc, {static_cast<double>(K), mean, m2});
  }
  __device__ static void repeat(Acc& acc, int64_t times) {
    acc.count *= static_cast<double>(times);
    acc.m2 *= static_cast<double>(times);
  }
};

template <class T>
struct StoreVar {
  T* y;
  double correction;
  bool root;
  template <class Acc>
  __device__ void operator()(int64_t i, const Acc& seen) const {
    const double var = seen.m2 / std::max(seen.count - correction, 0.0);
    y[i] = static_cast<T>(static_cast<compute_t<T>>(root ? std::sqrt(var) : var));
  }
};

}  // namespace

void reduce_var(Array& y, const Array& x, double correction, bool root) {
  for_float("var", x.dtype(), [&]<class T>(T) {
    reduce_loop<Moments<T>, T>("var", y, x, StoreVar<T>{y.mutable_data<T>(), correction, root});
  });
}

}  // namespace ink::cuda
