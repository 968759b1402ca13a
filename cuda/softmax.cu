// softmax over the last dimension: the twin of autograd/ops/softmax.cpp.          (the one to copy)
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include "autograd/kernels.h"
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

// A block takes a row; each thread every kThreads-th element of it.
template <class T>
struct Softmax {
  static constexpr int kThreads = kRowThreads;
  using C = compute_t<T>;
  struct Shared {
    BlockScratch<C> scratch;
  };
  T* y;
  const T* x;
  int64_t n;

  __device__ void operator()(Shared& shared) const {
    const T* a = x + blockIdx.x * n;
    T* b = y + blockIdx.x * n;
    C top = -infinity<C>();
    for (int64_t i = threadIdx.x; i < n; i += kThreads) top = Larger::join(top, C(a[i]));
    top = block_max<kThreads>(top, shared.scratch);
    C total = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads)
      total += simd::exp_nonpositive(C(a[i]) - top);
    const C scale = 1 / block_sum<kThreads>(total, shared.scratch);
    for (int64_t i = threadIdx.x; i < n; i += kThreads)
      b[i] = T(simd::exp_nonpositive(C(a[i]) - top) * scale);
  }
};

template <class T>
struct SoftmaxBackward {
  static constexpr int kThreads = kRowThreads;
  using C = compute_t<T>;
  struct Shared {
    BlockScratch<C> scratch;
  };
  T* dx;
  const T *dy, *y;
  int64_t n;

  __device__ void operator()(Shared& shared) const {
    const T *a = y + blockIdx.x * n, *g = dy + blockIdx.x * n;
    T* d = dx + blockIdx.x * n;
    C dot = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) dot += C(g[i]) * C(a[i]);
    dot = block_sum<kThreads>(dot, shared.scratch);
    for (int64_t i = threadIdx.x; i < n; i += kThreads) d[i] = T(C(a[i]) * (C(g[i]) - dot));
  }
};

}  // namespace

void softmax(Tensor& y, const Tensor& x) {
  for_float("softmax", x.dtype(), [&]<class T>(T) {
    launch("softmax", row_count(x), Softmax<T>{y.mutable_data<T>(), x.data<T>(), x.size(-1)});
  });
}

void softmax_backward(Tensor& dx, const Tensor& dy, const Tensor& y) {
  for_float("softmax_backward", y.dtype(), [&]<class T>(T) {
    launch("softmax_backward", row_count(y),
           SoftmaxBackward<T>{dx.mutable_data<T>(), dy.data<T>(), y.data<T>(), y.size(-1)});
  });
}

}  // namespace ink::cuda
