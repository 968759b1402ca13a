// What linear shares with the ops that hold such a product. The gradients of y = x W^T + b are
// taken from dy's rows (rows, out), which as_gemm_operand gave; each is added to what the walk has
// collected for that input already, if it has. Outside any graph.
#pragma once

#include <array>

#include "autograd/engine/graph.h"

namespace ink {

/// dW = dy^T x (out, in), for input number `i`.
Tensor linear_dweight(VjpContext& g, size_t i, const Array& dy, const Array& x, DType dtype);
/// dx = dy W, of x's shape.
Tensor linear_dx(VjpContext& g, size_t i, const Array& dy, const Array& weight, const Shape& shape,
                 DType dtype);
/// db = sum of dy's rows (out).
Tensor linear_dbias(VjpContext& g, size_t i, const Array& dy, DType dtype);

/// dx (of `shape`), dW and db in basic ops, to be differentiated, for the inputs that want one.
Grads linear_gradients(VjpContext& g, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Shape& shape, const std::array<DType, 3>& dtypes);

/// x W^T + b, of x's dtype, which f32 weights are rounded to. Outside any graph.
Tensor linear_forward(const Array& x, const Array& weight, const Array& bias);
/// Records y = in W^T + b, where `in` is x in y's dtype.
Tensor record_linear(const Tensor& x, const Tensor& in, const Tensor& weight, const Tensor& bias,
                     const Tensor& y);

/// Throws unless x W^T + b can be computed, with the op's name.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace ink
