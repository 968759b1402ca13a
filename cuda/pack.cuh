// Packs: contiguous elements that are moved, and computed with, as one.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "autograd/base/dtype.h"
#include "cuda/launch.cuh"

namespace ink::cuda {

/// N contiguous elements, which are moved as one.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

/// How many elements kernels move at a time where memory allows it: 16 bytes. Those of 8 bytes are
/// moved one by one, which compiles half as many kernels for f64 and i64.
template <class... T>
inline constexpr int kPacked = std::max({sizeof(T)...}) == 8
                                   ? 1
                                   : std::min(16 / static_cast<int>(std::max({sizeof(T)...})), 8);

/// Can packs of 16 bytes start at all of these? Null pointers do not matter.
inline bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

/// f applied to the first elements, to the second ones, and so on.
template <class F, int N, class A, class... B>
__device__ __forceinline__ auto zip(const F& f, const Pack<A, N>& a, const Pack<B, N>&... b) {
  Pack<decltype(f(a.at[0], b.at[0]...)), N> y;
#pragma unroll
  for (int j = 0; j < N; ++j) y.at[j] = f(a.at[j], b.at[j]...);
  return y;
}

template <class C, int N>
__device__ __forceinline__ Pack<C, N> operator*(const Pack<C, N>& a, const Pack<C, N>& b) {
  return zip([](C v, C w) { return v * w; }, a, b);
}
template <class C, int N>
__device__ __forceinline__ Pack<C, N> operator+(const Pack<C, N>& a, const Pack<C, N>& b) {
  return zip([](C v, C w) { return v + w; }, a, b);
}
template <class C, int N>
__device__ __forceinline__ C sum(const Pack<C, N>& a) {
  C total = a.at[0];
#pragma unroll
  for (int j = 1; j < N; ++j) total += a.at[j];
  return total;
}

/// Loads and stores a pack, in the type of its arithmetic. (The whole pack is copied before any of
/// it is used, because otherwise nvcc makes N loads.)
template <int N, class T>
__device__ __forceinline__ Pack<compute_t<T>, N> load(const T* from) {
  const Pack<T, N> values = *reinterpret_cast<const Pack<T, N>*>(from);
  return zip([](T v) { return static_cast<compute_t<T>>(v); }, values);
}
template <class T, class C, int N>
__device__ __forceinline__ void store(T* to, const Pack<C, N>& values) {
  *reinterpret_cast<Pack<T, N>*>(to) = zip([](C v) { return static_cast<T>(v); }, values);
}

}  // namespace ink::cuda
