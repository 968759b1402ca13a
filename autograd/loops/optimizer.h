// The arguments of optimizers' kernels: a training step's numbers, and lists of parameters. The
// numbers are arrays, which the host need not read, so a device can run step after step alone.
#pragma once

#include <tuple>

#include "autograd/memory/array.h"

namespace ink {

struct OptimizerStep {
  Array lr;         ///< f64 (): learning rate; the host writes it before a step
  Array grad_norm;  ///< f64 (): Euclidean norm of all gradients together, before clipping
  Array clip;       ///< f64 (): the factor that clips gradients; 1 when they need not be clipped
  Array finite;     ///< bool (): are the loss and all gradients finite? If not, the step is skipped
  Array skipped;    ///< i64 (2): how many steps were skipped, in all and since the last good one
  Array loss_sum = {};  ///< f32 (), or undefined: the losses of steps that were not skipped, added

  auto arrays() const { return std::tie(lr, grad_norm, clip, finite, skipped, loss_sum); }
};

/// Parameters and what belongs to each, as lists of one length. Parameters without a gradient do
/// not change.
struct ParameterLists {
  Arrays values;
  Arrays grads;    ///< as values, or undefined
  Arrays rounded;  ///< bf16 copies of values, written with them, or undefined
  Array counts;    ///< i64 (P): updates so far
  Array lr_scale;  ///< f64 (P): factor of the learning rate
  Array decay;     ///< f64 (P): weight decay

  auto arrays() const { return std::tie(values, grads, rounded, counts, lr_scale, decay); }
};

namespace cpu {
/// gradient_norm sums squares in blocks of so many elements of all gradients, one gradient after
/// the other; a block's pieces of several gradients are added in that order, and then the blocks.
constexpr int64_t kNormBlock = 4096;
/// Of such a piece, x (n).
double sum_of_squares(const float* x, int64_t n);
}  // namespace cpu

}  // namespace ink
