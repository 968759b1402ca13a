// Fills and copies: the twins of autograd/ops/copy.cpp.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct Constant {
  static constexpr int kInputs = 0;
  T value;
  __device__ T operator()() const { return value; }
};

template <class To, class From>
struct Convert {
  static constexpr int kInputs = 1;
  __device__ To operator()(From value) const {
    return static_cast<To>(static_cast<compute_t<From>>(value));
  }
};

}  // namespace

void fill(Tensor& y, double value) {
  for_any(y.dtype(), [&]<class T>(T) { map<T>("fill", y, Constant<T>{static_cast<T>(value)}); });
}

void copy(Tensor& y, const Tensor& x) {
  for_any(x.dtype(), [&]<class From>(From) {
    for_any(y.dtype(), [&]<class To>(To) { map<To, From>("copy", y, Convert<To, From>(), x); });
  });
}

}  // namespace ink::cuda
