// Limits on gradients, as in torch.nn.utils. Call them between backward and an optimizer's step. An
// optimizer's own grad_clip does the same as clip_grad_norm_ in fewer passes.
#pragma once

#include "autograd/engine/graph.h"

namespace ink {

/// Scales all gradients by max_norm / (norm + 1e-6) if the p-norm of all of them together
/// (norm_type = p; infinity: the largest element) exceeds max_norm. Returns that norm, () f32, or
/// f64 if a gradient is. Parameters without a gradient are left out. Pascanu et al. 2013, algorithm
/// 1.
Tensor clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type = 2);
/// Clamps every element of every gradient to [-clip_value, clip_value].
void clip_grad_value_(const TensorList& parameters, double clip_value);

}  // namespace ink
