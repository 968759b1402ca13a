// The gradients of swiglu: the twin of autograd/ops/swiglu.cpp.
//   dg = dy u silu'(g),   du = dy silu(g)
#include "cuda/elementwise.cuh"

namespace ink::cuda {
namespace {

template <class T>
struct GateGradient {
  using C = compute_t<T>;
  __device__ T operator()(T dy, T gate, T up) const {
    return static_cast<T>(
        formula::silu::df(static_cast<C>(dy) * static_cast<C>(up), static_cast<C>(gate)));
  }
};

}  // namespace

void swiglu_backward(Array& dgate, Array& dup, const Array& dy, const Array& gate,
                     const Array& up) {
  if (dup.defined()) binary(dup, gate, dy, BinaryOp::swiglu);
  if (!dgate.defined()) return;
  for_float("swiglu_backward", gate.dtype(),
            [&]<class T>(T) { map("swiglu_backward", dgate, GateGradient<T>(), dy, gate, up); });
}

}  // namespace ink::cuda
