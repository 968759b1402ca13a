// Twins that are not written yet.
#include "autograd/kernels.h"
namespace ink::cuda {
void triangle(Tensor&, const Tensor&, int64_t, bool) { ink::detail::fail("triangle: no CUDA kernel yet"); }
void unary(Tensor&, const Tensor&, UnaryOp) { ink::detail::fail("unary: no CUDA kernel yet"); }
void unary_backward(Tensor&, const Tensor&, const Tensor&, UnaryOp) { ink::detail::fail("unary_backward: no CUDA kernel yet"); }
void binary(Tensor&, const Tensor&, const Tensor&, BinaryOp) { ink::detail::fail("binary: no CUDA kernel yet"); }
void binary_number(Tensor&, const Tensor&, double, BinaryOp) { ink::detail::fail("binary_number: no CUDA kernel yet"); }
void where(Tensor&, const Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("where: no CUDA kernel yet"); }
void masked_fill(Tensor&, const Tensor&, const Tensor&, double) { ink::detail::fail("masked_fill: no CUDA kernel yet"); }
void compare(Tensor&, const Tensor&, const Tensor&, CompareOp) { ink::detail::fail("compare: no CUDA kernel yet"); }
void compare_number(Tensor&, const Tensor&, double, CompareOp) { ink::detail::fail("compare_number: no CUDA kernel yet"); }
void reduce(Tensor&, const Tensor&, ReduceOp) { ink::detail::fail("reduce: no CUDA kernel yet"); }
void arg_reduce(Tensor&, Tensor&, const Tensor&, int64_t, bool) { ink::detail::fail("arg_reduce: no CUDA kernel yet"); }
void reduce_var(Tensor&, const Tensor&, double, bool) { ink::detail::fail("reduce_var: no CUDA kernel yet"); }
void attention(Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const AttentionRule&) { ink::detail::fail("attention: no CUDA kernel yet"); }
void attention_backward(Tensor&, Tensor&, Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const AttentionRule&) { ink::detail::fail("attention_backward: no CUDA kernel yet"); }
void sum_rows(Tensor&, const Tensor&, bool) { ink::detail::fail("sum_rows: no CUDA kernel yet"); }
void cumsum(Tensor&, const Tensor&, int64_t) { ink::detail::fail("cumsum: no CUDA kernel yet"); }
void sort(Tensor&, Tensor&, const Tensor&, int64_t, bool) { ink::detail::fail("sort: no CUDA kernel yet"); }
void gather(Tensor&, const Tensor&, const Tensor&, int64_t) { ink::detail::fail("gather: no CUDA kernel yet"); }
void scatter_add(Tensor&, const Tensor&, const Tensor&, int64_t) { ink::detail::fail("scatter_add: no CUDA kernel yet"); }
void log_softmax(Tensor&, const Tensor&) { ink::detail::fail("log_softmax: no CUDA kernel yet"); }
void log_softmax_backward(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("log_softmax_backward: no CUDA kernel yet"); }
void layer_norm(Tensor&, Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, double) { ink::detail::fail("layer_norm: no CUDA kernel yet"); }
void layer_norm_backward(Tensor&, Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool) { ink::detail::fail("layer_norm_backward: no CUDA kernel yet"); }
void rms_norm(Tensor&, Tensor&, const Tensor&, const Tensor&, double) { ink::detail::fail("rms_norm: no CUDA kernel yet"); }
void rms_norm_backward(Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool) { ink::detail::fail("rms_norm_backward: no CUDA kernel yet"); }
void target_scale(Tensor&, const Tensor&, int64_t) { ink::detail::fail("target_scale: no CUDA kernel yet"); }
void cross_entropy(Tensor&, Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) { ink::detail::fail("cross_entropy: no CUDA kernel yet"); }
void embedding(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding: no CUDA kernel yet"); }
void embedding_backward(Tensor&, const Tensor&, const Tensor&) { ink::detail::fail("embedding_backward: no CUDA kernel yet"); }
void dropout(Tensor&, const Tensor&, double, const RandomPosition&) { ink::detail::fail("dropout: no CUDA kernel yet"); }
void gradient_norm(OptimizerStep&, const Tensors&, const Tensor&, double) { ink::detail::fail("gradient_norm: no CUDA kernel yet"); }
void adamw(Tensors&, Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, double, double) { ink::detail::fail("adamw: no CUDA kernel yet"); }
void sgd(Tensors&, Tensors&, Tensor&, const Tensors&, const OptimizerStep&, const Tensor&, const Tensor&, double, bool) { ink::detail::fail("sgd: no CUDA kernel yet"); }
}
