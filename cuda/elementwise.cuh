// Kernels that treat each element by itself, over operands of one shape and any strides.
#pragma once

#include "autograd/kernels.h"
#include "autograd/ops/strided_loop.h"
#include "cuda/launch.cuh"

namespace ink::cuda {

/// Where element i, in row-major order, of N operands of one shape lies; joined dimensions only.
template <int N>
struct Places {
  int dims;
  int64_t sizes[Shape::kMaxDims];
  int64_t strides[N][Shape::kMaxDims];

  Places(const Shape& shape, const std::array<const Tensor*, N>& operands) {
    const StridedLoop<N> loop(shape, operands);
    dims = static_cast<int>(loop.sizes.size());
    for (int d = 0; d < dims; ++d) {
      sizes[d] = loop.sizes[d];
      for (int k = 0; k < N; ++k) strides[k][d] = loop.strides[k][d];
    }
  }

  __device__ void find(int64_t i, int64_t (&offsets)[N]) const {
    for (int k = 0; k < N; ++k) offsets[k] = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t rest = d == 0 ? 0 : i / sizes[d], index = d == 0 ? i : i - rest * sizes[d];
      for (int k = 0; k < N; ++k) offsets[k] += index * strides[k][d];
      i = rest;
    }
  }
};

/// y[i] = f(x[i]...) for every element.
template <class F, class Y, class A = Y, class B = Y, class C = Y>
struct Map {
  static constexpr int kThreads = 256, kEach = 4;
  static constexpr int kInputs = F::kInputs;
  F f;
  Y* y;
  const A* a;
  const B* b;
  const C* c;
  Places<1 + kInputs> places;
  int64_t n;

  __device__ void operator()() const {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = first + k * kThreads;
      if (i < n) one(i);
    }
  }
  __device__ void one(int64_t i) const {
    int64_t at[1 + kInputs];
    places.find(i, at);
    if constexpr (kInputs == 0) y[at[0]] = f();
    if constexpr (kInputs == 1) y[at[0]] = f(a[at[1]]);
    if constexpr (kInputs == 2) y[at[0]] = f(a[at[1]], b[at[2]]);
    if constexpr (kInputs == 3) y[at[0]] = f(a[at[1]], b[at[2]], c[at[3]]);
  }
};

/// Runs y = f(), f(a), f(a, b) or f(a, b, c) over tensors of y's shape. F: a struct of values with
/// `static constexpr int kInputs`.
template <class Y, class F>
void map(const char* op, Tensor& y, const F& f) {
  using Kernel = Map<F, Y>;
  const Kernel kernel{f,       y.mutable_data<Y>(), nullptr,  nullptr,
                      nullptr, {y.shape(), {&y}},   y.numel()};
  launch(op, blocks_for(y.numel(), Kernel::kThreads, Kernel::kEach), kernel);
}
template <class Y, class A, class F>
void map(const char* op, Tensor& y, const F& f, const Tensor& a) {
  using Kernel = Map<F, Y, A>;
  const Kernel kernel{f,       y.mutable_data<Y>(),   a.data<A>(), nullptr,
                      nullptr, {y.shape(), {&y, &a}}, y.numel()};
  launch(op, blocks_for(y.numel(), Kernel::kThreads, Kernel::kEach), kernel);
}
template <class Y, class A, class B, class F>
void map(const char* op, Tensor& y, const F& f, const Tensor& a, const Tensor& b) {
  using Kernel = Map<F, Y, A, B>;
  const Kernel kernel{f,       y.mutable_data<Y>(),       a.data<A>(), b.data<B>(),
                      nullptr, {y.shape(), {&y, &a, &b}}, y.numel()};
  launch(op, blocks_for(y.numel(), Kernel::kThreads, Kernel::kEach), kernel);
}
template <class Y, class A, class B, class C, class F>
void map(const char* op, Tensor& y, const F& f, const Tensor& a, const Tensor& b, const Tensor& c) {
  using Kernel = Map<F, Y, A, B, C>;
  const Kernel kernel{f,           y.mutable_data<Y>(),           a.data<A>(), b.data<B>(),
                      c.data<C>(), {y.shape(), {&y, &a, &b, &c}}, y.numel()};
  launch(op, blocks_for(y.numel(), Kernel::kThreads, Kernel::kEach), kernel);
}

}  // namespace ink::cuda
