// Kernels of optimizers.
#pragma once

#include "autograd/kernels/kernel.h"
#include "autograd/loops/optimizer.h"

namespace ink {

// clang-format off

// ---- loops/optimizer.cpp
// Fills all fields of step except lr.
KERNEL(gradient_norm, OptimizerStep step, const Arrays& grads, const Array& loss, double max_norm)
// m, v: one for each value, of its shape and dtype.
KERNEL(adamw, ParameterLists& p, Arrays& m, Arrays& v, const OptimizerStep& step, double beta1,
       double beta2, double eps)
// buffers: one for each value likewise, or an empty list without momentum.
KERNEL(sgd, ParameterLists& p, Arrays& buffers, const OptimizerStep& step, double momentum,
       bool nesterov)

// clang-format on

}  // namespace ink
