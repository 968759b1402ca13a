// Fills and copies: the twins of autograd/ops/copy.cpp.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class To, class From>
struct Convert {
  __device__ To operator()(From value) const {
    if constexpr (std::is_same_v<To, From>) return value;
    return static_cast<To>(static_cast<compute_t<From>>(value));
  }
};

}  // namespace

void fill(Tensor& y, double value) {
  for_any(y.dtype(), [&]<class T>(T) { map("fill", y, Constant<T>{static_cast<T>(value)}); });
}

void copy(Tensor& y, const Tensor& x) {
  for_any(x.dtype(), [&]<class From>(From) {
    for_any(y.dtype(), [&]<class To>(To) { map("copy", y, Convert<To, From>(), x); });
  });
}

}  // namespace ink::cuda
