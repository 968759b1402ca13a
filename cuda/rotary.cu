// Rotary positions: the twin of autograd/ops/rotary.cpp.
//   ya = a cos - b sin,   yb = b cos + a sin
// Each half of the pairs is a map over a view. The second one finds its operands in the L2 cache.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct Turn {
  using C = compute_t<T>;
  C sign;
  __device__ T operator()(T a, T b, C cos, C sin) const {
    return static_cast<T>(static_cast<C>(a) * cos + static_cast<C>(b) * (sign * sin));
  }
};

// `count` of each row's numbers: those at start, start + step, ...
Array part_of(const Array& x, int64_t start, int64_t count, int64_t step) {
  Layout layout = x.layout();
  layout.offset += start * layout.strides.back();
  layout.sizes.back() = count;
  layout.strides.back() *= step;
  return x.seen_as(layout);
}

}  // namespace

void rotary(Array& y, const Array& x, const Array& cos, const Array& sin, bool interleaved,
            bool back) {
  const int64_t pairs = cos.size(-1), n = x.size(-1), step = interleaved ? 2 : 1;
  const int64_t second = interleaved ? 1 : pairs;
  const Array a = part_of(x, 0, pairs, step), b = part_of(x, second, pairs, step);
  Array ya = part_of(y, 0, pairs, step), yb = part_of(y, second, pairs, step);
  for_float("rotary", x.dtype(), [&]<class T>(T) {
    const compute_t<T> sign = back ? -1 : 1;
    map("rotary", ya, Turn<T>{-sign}, a, b, cos, sin);
    map("rotary", yb, Turn<T>{sign}, b, a, cos, sin);
  });
  Array rest = part_of(y, 2 * pairs, n - 2 * pairs, 1);
  if (n > 2 * pairs) copy(rest, part_of(x, 2 * pairs, n - 2 * pairs, 1));
}

}  // namespace ink::cuda
