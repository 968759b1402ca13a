// Activation checkpointing: less memory for more time.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// Returns fn(inputs). The graph keeps the inputs alone, and backward runs fn once more when it
/// gets there. Chen et al. 2016, "Training deep nets with sublinear memory cost". Gradients are bit
/// for bit those of a plain call, dropout included, because the second run has the context and the
/// random position of the first. Sections may nest, and fn may use parameters that it captures. fn
/// must compute the same both times, and must not write to its inputs (backward throws if it did).
///
///   x = checkpoint([&](const Tensor& x) { return block(x); }, x);
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                  const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input);

}  // namespace ink
