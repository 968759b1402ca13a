// What other ops with dropout of their own take from dropout.cpp.
#pragma once

#include "autograd/base/context.h"
#include "autograd/tensor.h"

namespace ink {

/// The position of the next mask, for dropout of x with probability p.
RandomPosition next_mask(const Tensor& x, double p);
/// dropout with the mask at a position.
Tensor dropout_at(const Tensor& x, double p, const RandomPosition& at);

}  // namespace ink
