// Fills, ramps and copies: the twins of autograd/ops/copy.cpp.
#include <algorithm>
#include <array>
#include <type_traits>

#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

// y_i = start + i step, or from the other end: end - (n - 1 - i) step.
template <class T, class Number>
struct Ramp {
  static constexpr int kThreads = 256;
  T* y;
  Number start, step, end;
  int64_t n, rising;

  __device__ void operator()() const {
    const int64_t i = global_thread();
    if (i >= n) return;
    const Number value = i < rising ? start + static_cast<Number>(i) * step
                                    : end - static_cast<Number>(n - 1 - i) * step;
    y[i] = static_cast<T>(value);
  }
};

template <class To, class From>
struct Convert {
  __device__ To operator()(From value) const {
    if constexpr (std::is_same_v<To, From>) return value;
    return static_cast<To>(static_cast<compute_t<From>>(value));
  }
};

// y = x where x is contiguous along dimension a and y along b: this copies a transposed matrix. A
// block takes a square of both, reads it in x's order and writes it in y's.
template <class T>
struct CopyTransposed {
  static constexpr int kThreads = 256, kSide = sizeof(T) < 4 ? 64 : 32;
  static constexpr int kApart = kSide + std::max<int>(1, 4 / sizeof(T));  // avoids bank conflicts
  struct Shared {
    T square[kSide][kApart];
  };
  T* y;
  const T* x;
  Places<4, uint64_t> squares;             // where they begin in y, in x, along a and along b
  int64_t a_size, b_size, y_step, x_step;  // the steps: of y along a, of x along b

  __device__ void operator()(Shared& shared) const {
    const auto [to, from, a, b] = squares.find(blockIdx.x);
    const int near = threadIdx.x % kSide, first = threadIdx.x / kSide;
#pragma unroll
    for (int far = first; far < kSide; far += kThreads / kSide) {
      if (a + near < a_size && b + far < b_size)
        shared.square[far][near] = x[from + far * x_step + near];
    }
    __syncthreads();
#pragma unroll
    for (int far = first; far < kSide; far += kThreads / kSide) {
      if (a + far < a_size && b + near < b_size)
        y[to + far * y_step + near] = shared.square[near][far];
    }
  }
};

// The dimension along which an operand is contiguous, if it is long; else -1.
int64_t dim_of_neighbours(const StridedLoop<2>& loop, size_t operand) {
  for (int64_t d = 0; d < loop.sizes.size(); ++d) {
    if (loop.strides[operand][d] == 1 && loop.sizes[d] >= 8) return d;
  }
  return -1;
}

template <class T>
void copy_transposed(T* y, const T* x, const StridedLoop<2>& loop, int64_t a, int64_t b) {
  constexpr int64_t kSide = CopyTransposed<T>::kSide;
  const Shape none = Shape::filled(loop.sizes.size(), 0);
  Shape sizes = loop.sizes;
  std::array<Shape, 4> steps{loop.strides[0], loop.strides[1], none, none};
  steps[2][a] = steps[3][b] = 1;
  for (const int64_t d : {a, b}) {
    sizes[d] = blocks_for(sizes[d], kSide);
    for (Shape& step : steps) step[d] *= kSide;
  }
  launch("copy", sizes.numel(),
         CopyTransposed<T>{y,
                           x,
                           {sizes, steps},
                           loop.sizes[a],
                           loop.sizes[b],
                           loop.strides[0][a],
                           loop.strides[1][b]});
}

}  // namespace

void fill(Array& y, double value) {
  for_any(y.dtype(), [&]<class T>(T) { map("fill", y, Constant<T>{static_cast<T>(value)}); });
}

void ramp(Array& y, double start, double step, double end, int64_t rising) {
  const int64_t n = y.numel();
  if (n == 0) return;
  for_any(y.dtype(), [&]<class T>(T) {
    const auto run = [&]<class Number>(Number) {
      using Kernel = Ramp<T, Number>;
      launch("ramp", blocks_for(n, Kernel::kThreads),
             Kernel{y.mutable_data<T>(), static_cast<Number>(start), static_cast<Number>(step),
                    static_cast<Number>(end), n, rising});
    };
    if constexpr (std::is_same_v<T, int64_t>) {
      if (rising == n) return run(int64_t());
    }
    run(double());
  });
}

void copy(Array& y, const Array& x) {
  const StridedLoop<2> loop(y.shape(), {&y, &x});
  const int64_t a = dim_of_neighbours(loop, 1), b = dim_of_neighbours(loop, 0);
  for_any(x.dtype(), [&]<class From>(From) {
    if (x.dtype() == y.dtype() && a >= 0 && b >= 0 && a != b)
      return copy_transposed(y.mutable_data<From>(), x.data<From>(), loop, a, b);
    for_any(y.dtype(), [&]<class To>(To) { map("copy", y, Convert<To, From>(), x); });
  });
}

}  // namespace ink::cuda
