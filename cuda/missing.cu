// Twins that are not written yet.
#include "autograd/kernels.h"
namespace ink::cuda {
void triangle(Tensor&, const Tensor&, int64_t, bool) { ink::detail::fail("triangle: no CUDA kernel yet"); }
void arg_reduce(Tensor&, Tensor&, const Tensor&, int64_t, bool) { ink::detail::fail("arg_reduce: no CUDA kernel yet"); }
void reduce_var(Tensor&, const Tensor&, double, bool) { ink::detail::fail("reduce_var: no CUDA kernel yet"); }
void cumsum(Tensor&, const Tensor&, int64_t) { ink::detail::fail("cumsum: no CUDA kernel yet"); }
void gather(Tensor&, const Tensor&, const Tensor&, int64_t) { ink::detail::fail("gather: no CUDA kernel yet"); }
void scatter_add(Tensor&, const Tensor&, const Tensor&, int64_t) { ink::detail::fail("scatter_add: no CUDA kernel yet"); }
void embedding(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding: no CUDA kernel yet"); }
void embedding_backward(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding_backward: no CUDA kernel yet"); }
void dropout(Tensor&, const Tensor&, double, const RandomPosition&) { ink::detail::fail("dropout: no CUDA kernel yet"); }
void gradient_norm(OptimizerStep&, const Tensors&, const Tensor&, double) { ink::detail::fail("gradient_norm: no CUDA kernel yet"); }
void adamw(Tensors&, Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, double, double) { ink::detail::fail("adamw: no CUDA kernel yet"); }
void sgd(Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, bool) { ink::detail::fail("sgd: no CUDA kernel yet"); }
}
