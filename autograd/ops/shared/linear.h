// What linear shares with the ops that contain such a product. The gradients of y = x W^T + b are
// computed from dy's rows (rows, out), as as_gemm_operand returns them. Each is added to the sum
// that the walk has collected for that input so far, if there is one. Nothing here is recorded.
#pragma once

#include <array>

#include "autograd/engine/graph.h"

namespace ink {

/// grads[1] = dW = dy^T x (out, in) and grads[2] = db = sum of dy's rows (out), where inputs 1 and
/// 2 need them. x may be undefined if W needs none.
void linear_parameters(VjpContext& g, Grads& grads, const Array& dy, const Array& x,
                       const std::array<DType, 3>& dtypes);
/// dx = dy W, of x's shape.
Tensor linear_dx(VjpContext& g, size_t i, const Array& dy, const Array& weight, const Shape& shape,
                 DType dtype);

/// dx (of `shape`), dW and db in basic ops, so that they can be differentiated again. Undefined for
/// an input that needs none.
Grads linear_gradients(VjpContext& g, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Shape& shape, const std::array<DType, 3>& dtypes);

/// x W^T + b in x's dtype, to which f32 weights are rounded. It is not recorded.
Tensor linear_forward(const Array& x, const Array& weight, const Array& bias);
/// Records y = in W^T + b, where `in` is x in y's dtype.
Tensor record_linear(const Tensor& x, const Tensor& in, const Tensor& weight, const Tensor& bias,
                     const Tensor& y);

/// Throws unless x W^T + b can be computed, with the op's name.
void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace ink
