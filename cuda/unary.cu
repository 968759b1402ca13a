// Elementwise ops of one tensor: the twins of autograd/ops/unary.cpp.
// The formulas are in autograd/loops/pointwise.h.
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

// dy f'(x); at: x or y, as df says.
template <class F, class T>
struct Derivative {
  using C = compute_t<T>;
  __device__ T operator()(T dy, T at) const {
    return static_cast<T>(F::df(static_cast<C>(dy), static_cast<C>(at)));
  }
};

template <class T>
struct Clamp {
  using C = compute_t<T>;
  C low, high;
  __device__ T operator()(T x) const {
    return static_cast<T>(formula::clamp::f(static_cast<C>(x), low, high));
  }
};

}  // namespace

void unary(Array& y, const Array& x, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    for_domain<F>(name_of(op), x.dtype(),
                  [&]<class T>(T) { map(name_of(op), y, Formula<F, T, T>(), x); });
  });
}

void unary_backward(Array& dx, const Array& dy, const Array& v, UnaryOp op) {
  visit(op, [&]<class F>(F) {
    if constexpr (requires { F::df(1.0f, 1.0f); }) {
      for_float(name_of(op), v.dtype(),
                [&]<class T>(T) { map(name_of(op), dx, Derivative<F, T>(), dy, v); });
    } else {
      ink::detail::fail({name_of(op), ": its formula has no df"});
    }
  });
}

void clamp(Array& y, const Array& x, double low, double high) {
  for_domain<formula::clamp>("clamp", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    map("clamp", y, Clamp<T>{static_cast<C>(low), static_cast<C>(high)}, x);
  });
}

}  // namespace ink::cuda
