// where, masked_fill: the twins of autograd/ops/where.cpp.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct Where {
  __device__ T operator()(bool condition, T a, T b) const { return condition ? a : b; }
};

template <class T>
struct MaskedFill {
  T value;
  __device__ T operator()(T x, bool masked) const { return masked ? value : x; }
};

}  // namespace

void where(Array& y, const Array& condition, const Array& a, const Array& b) {
  for_any(y.dtype(), [&]<class T>(T) { map("where", y, Where<T>(), condition, a, b); });
}

void masked_fill(Array& y, const Array& x, const Array& mask, double value) {
  for_any(y.dtype(), [&]<class T>(T) {
    map("masked_fill", y, MaskedFill<T>{static_cast<T>(value)}, x, mask);
  });
}

}  // namespace ink::cuda
