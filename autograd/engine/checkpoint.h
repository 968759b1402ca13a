// Activation checkpointing: memory for time.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// fn(inputs), of which the graph keeps the inputs alone: backward runs fn once more when it gets
/// there. Chen et al. 2016, "Training deep nets with sublinear memory cost". Gradients are bit for
/// bit those of a plain call, dropout included: the second run is under the context of the first,
/// its random position too. Sections may nest, and fn may use parameters that it captures. fn must
/// compute the same twice, and must not write to its inputs (backward says so if it did).
///
///   x = checkpoint([&](const Tensor& x) { return block(x); }, x);
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                  const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input);

}  // namespace ink
