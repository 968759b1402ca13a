// Where the result of an elementwise op lies.
#pragma once

#include <initializer_list>

#include "autograd/tensor.h"

namespace ink {

/// An uninitialised tensor for the result of an elementwise op. As in PyTorch, it has its inputs'
/// order in memory, so that all are read and written from end to end.
Tensor empty_result(const Shape& shape, const Options& options,
                    std::initializer_list<const Tensor*> inputs);

}  // namespace ink
