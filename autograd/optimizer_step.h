// What a training step knows about itself, as tensors: the host need not read any of it, and a
// device can run step after step alone.
#pragma once

#include <vector>

#include "autograd/tensor.h"

namespace ink {

using Tensors = std::vector<Tensor>;

struct OptimizerStep {
  Tensor lr;         ///< f64 (): learning rate; the host writes it before a step
  Tensor grad_norm;  ///< f64 (): Euclidean norm of all gradients together, before clipping
  Tensor clip;     ///< f64 (): what gradients are multiplied by to be clipped; 1 when they need not
  Tensor finite;   ///< bool (): are the loss and every gradient finite? If not, the step is skipped
  Tensor skipped;  ///< i64 (2): steps skipped so far; and those of them since the last that was not
};

}  // namespace ink
