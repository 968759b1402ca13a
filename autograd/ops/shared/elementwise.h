// What elementwise ops share.
#pragma once

#include <initializer_list>

#include "autograd/basic_ops.h"

namespace ink {

enum class UnaryOp;  // loops/pointwise.h
enum class BinaryOp;

/// An uninitialised tensor for the result of an elementwise op. As in PyTorch, it has its inputs'
/// order in memory, so that all are read and written from end to end.
Tensor empty_result(const Shape& shape, const Options& options,
                    std::initializer_list<const Tensor*> inputs);

/// The values of op(x), and of x op number, which have x's dtype. Not recorded.
Tensor value_of(UnaryOp op, const Tensor& x);
Tensor value_of(BinaryOp op, const Tensor& x, double number);

/// dy gelu'(x), recorded if the gradient will be differentiated. (gelu.cpp)
Tensor gelu_backward(const Tensor& dy, const Tensor& x, Gelu approximate);

}  // namespace ink
