// Twins that are not written yet.
#include "autograd/kernels.h"
namespace ink::cuda {
void embedding(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding: no CUDA kernel yet"); }
void embedding_backward(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding_backward: no CUDA kernel yet"); }
void dropout(Tensor&, const Tensor&, double, const RandomPosition&) { ink::detail::fail("dropout: no CUDA kernel yet"); }
void gradient_norm(OptimizerStep&, const Tensors&, const Tensor&, double) { ink::detail::fail("gradient_norm: no CUDA kernel yet"); }
void adamw(Tensors&, Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, double, double) { ink::detail::fail("adamw: no CUDA kernel yet"); }
void sgd(Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, bool) { ink::detail::fail("sgd: no CUDA kernel yet"); }
}
