// Elementwise kernels, over operands of one shape and any strides.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"
#include "autograd/loops/strided_loop.h"
#include "cuda/launch.cuh"
#include "cuda/pack.cuh"

namespace ink::cuda {

/// Division by a number that is known at the launch, by a multiplication and a shift. For numbers
/// below 2^(bits - 1) of a word of 32 or 64 bits.
///   n / d = floor(n m / 2^(bits - 1 + l)),  l = ceil(log2 d),  m = ceil(2^(bits - 1 + l) / d)
template <class Word>
struct Divider {
  static constexpr int kBits = 8 * sizeof(Word);
  __extension__ typedef std::conditional_t<kBits == 32, uint64_t, unsigned __int128> Twice;
  Word divisor = 1, factor = Word{1} << (kBits - 1);
  int shift = 0;

  Divider() = default;
  explicit Divider(int64_t d)
      : divisor(static_cast<Word>(d)), shift(static_cast<int>(std::bit_width(Word(d - 1)))) {
    factor = static_cast<Word>(((Twice{1} << (kBits - 1 + shift)) + divisor - 1) / divisor);
  }
  __device__ Word quotient(Word n) const {
    return static_cast<Word>(Twice{2 * n} * factor >> kBits) >> shift;
  }
};

/// The most elements of a launch, so that it can count in 32 bits.
inline constexpr int64_t kMostElements = int64_t{1} << 30;

/// The offsets of element i, in row-major order, in N operands of one shape.
template <int N, class Word = uint32_t>
struct Places {
  using Offsets = std::array<int64_t, N>;
  int dims;
  Divider<Word> sizes[Shape::kMaxDims];  // innermost first
  int64_t strides[Shape::kMaxDims][N];
  Offsets start;

  Places(const Shape& shape, const std::array<Shape, N>& steps, const Offsets& first = {})
      : dims(static_cast<int>(shape.size())), start(first) {
    for (int d = 0; d < dims; ++d) {
      sizes[d] = Divider<Word>(std::max<int64_t>(shape[dims - 1 - d], 1));
      for (size_t k = 0; k < N; ++k) strides[d][k] = steps[k][dims - 1 - d];
    }
  }
  Places(const StridedLoop<N>& loop, const Offsets& first = {})
      : Places(loop.sizes, loop.strides, first) {}

  __device__ Offsets find(Word i) const {
    Offsets at = start;
    for (int d = 0; d < dims; ++d) {
      const Word rest = d + 1 == dims ? 0 : sizes[d].quotient(i);
      const auto index = static_cast<int64_t>(i - rest * sizes[d].divisor);
      for (int k = 0; k < N; ++k) at[k] += index * strides[d][k];
      i = rest;
    }
    return at;
  }
};

/// Calls run(piece, start) for pieces of a loop, each small enough for one launch. Nearly always
/// there is one piece. start: where the piece's operands begin.
template <int N, class Run>
void for_each_piece(const StridedLoop<N>& loop, const Run& run,
                    const std::array<int64_t, N>& start = {}) {
  const int64_t n = loop.sizes.numel();
  if (n == 0) return;
  if (n <= kMostElements) return run(loop, start);
  const int64_t outermost = loop.sizes[0];
  const int64_t each = std::max<int64_t>(1, kMostElements / (n / outermost));
  for (int64_t begin = 0; begin < outermost; begin += each) {
    StridedLoop<N> piece = loop;
    std::array<int64_t, N> first = start;
    piece.sizes[0] = std::min(each, outermost - begin);
    for (size_t k = 0; k < N; ++k) first[k] += begin * loop.strides[k][0];
    if (piece.sizes[0] == 1 && piece.sizes.size() > 1) {
      piece.sizes.erase(0);
      for (Shape& strides : piece.strides) strides.erase(0);
    }
    for_each_piece<N>(piece, run, first);
  }
}

/// y[i] = f(x[i]...), V elements of a row at a time. An input may repeat one element along rows.
template <class F, int V, class Y, class... X>
struct Map {
  static constexpr int kThreads = 256, kEach = V > 1 ? 2 : 4;
  static constexpr int kInputs = sizeof...(X);
  using Places = cuda::Places<1 + kInputs>;
  F f;
  Y* y;
  std::array<const void*, kInputs> x;
  Places places;  // of each V elements
  uint32_t n;     // elements; a last V may be less only in a single row

  __device__ void operator()() const { all(std::index_sequence_for<X...>()); }

  // All loads come before the first store, so that the GPU waits once.
  template <size_t... K>
  __device__ void all(std::index_sequence<K...>) const {
    std::tuple<Pack<X, V>...> in[kEach];
    int64_t to[kEach];
    const uint32_t first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const uint32_t i = (first + e * kThreads) * V;
      if (i >= n) break;
      const auto at = places.find(first + e * kThreads);
      to[e] = at[0];
      ((std::get<K>(in[e]) = load<X>(x[K], at[K + 1], places.strides[0][K + 1], left(i))), ...);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const uint32_t i = (first + e * kThreads) * V;
      if (i >= n) break;
      Pack<Y, V> out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.at[v] = f(std::get<K>(in[e]).at[v]...);
      store(out, y + to[e], left(i));
    }
  }

  __device__ int left(uint32_t i) const { return static_cast<int>(n - i); }
  template <class T>
  __device__ static Pack<T, V> load(const void* from, int64_t at, int64_t step, int left) {
    const T* p = static_cast<const T*>(from) + at;
    if (V > 1 && step != 0 && left >= V) return *reinterpret_cast<const Pack<T, V>*>(p);
    Pack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v) pack.at[v] = p[step != 0 && v < left ? v : 0];
    return pack;
  }
  __device__ static void store(const Pack<Y, V>& pack, Y* p, int left) {
    if (V > 1 && left >= V) {
      *reinterpret_cast<Pack<Y, V>*>(p) = pack;
      return;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (v < left) p[v] = pack.at[v];
    }
  }
};

/// Can operand k of a loop be moved V elements at a time? (A repeated one is read one element at a
/// time.)
template <int N>
bool in_packs(const StridedLoop<N>& loop, size_t k, const void* data, size_t bytes, int64_t V) {
  const Shape& strides = loop.strides[k];
  if (k > 0 && strides.back() == 0) return true;
  bool even = strides.back() == 1 && reinterpret_cast<uintptr_t>(data) % bytes == 0;
  for (int64_t d = 0; d + 1 < strides.size(); ++d) even &= strides[d] % V == 0;
  return even && (strides.size() == 1 || loop.sizes.back() % V == 0);
}

/// Launches Map with the element types of a formula's operator().
template <class Signature>
struct Mapping;
template <class F, class Y, class... X>
struct Mapping<Y (F::*)(X...) const> {
  static constexpr int kInputs = sizeof...(X), kOperands = 1 + kInputs;
  static constexpr int kWide = kPacked<Y, X...>;
  using Loop = StridedLoop<kOperands>;

  template <size_t... K>
  static void run(std::index_sequence<K...>, const char* op, Array& y, const F& f,
                  const std::array<const Array*, kInputs>& inputs) {
    const Loop loop(y.shape(), {&y, inputs[K]...});
    Y* out = y.mutable_data<Y>();
    const std::array<const void*, kInputs> x{inputs[K]->template data<X>()...};
    const bool wide = in_packs(loop, 0, out, sizeof(Y) * kWide, kWide) &&
                      (... && in_packs(loop, K + 1, x[K], sizeof(X) * kWide, kWide));
    wide ? start<kWide>(op, f, out, x, loop) : start<1>(op, f, out, x, loop);
  }

  template <int V>
  static void start(const char* op, const F& f, Y* y, const std::array<const void*, kInputs>& x,
                    const Loop& all) {
    using Kernel = Map<F, V, Y, X...>;
    for_each_piece<kOperands>(all, [&](Loop loop, const std::array<int64_t, kOperands>& first) {
      const int64_t n = loop.sizes.numel();
      if (V > 1) {
        loop.sizes.back() = (loop.sizes.back() + V - 1) / V;
        for (Shape& strides : loop.strides) strides.back() *= V;
      }
      launch(op, blocks_for(n, Kernel::kThreads, Kernel::kEach * V),
             Kernel{f, y, x, {loop, first}, static_cast<uint32_t>(n)});
    });
  }
};

/// What map() computes by a formula of autograd/loops/pointwise.h, in the type of the arithmetic.
template <class F, class Y, class... X>
struct Formula {
  __device__ Y operator()(X... x) const {
    return static_cast<Y>(F::f(static_cast<compute_t<X>>(x)...));
  }
};
/// The same of an element and a number.
template <class F, class Y, class X>
struct FormulaOfNumber {
  compute_t<X> number;
  __device__ Y operator()(X x) const {
    return static_cast<Y>(F::f(static_cast<compute_t<X>>(x), number));
  }
};

/// y = f(inputs...), element by element, for tensors of one shape (expanded where they broadcast)
/// and any layouts. F: a struct of values; the parameter types and the result of its operator() are
/// the element types. y may be one of the inputs.
template <class F, class... Inputs>
void map(const char* op, Array& y, const F& f, const Inputs&... inputs) {
  Mapping<decltype(&F::operator())>::run(std::index_sequence_for<Inputs...>(), op, y, f,
                                         {&inputs...});
}

}  // namespace ink::cuda
