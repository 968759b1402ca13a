// Kernels: ops over the last dimension, row by row.
#pragma once

#include <tuple>

#include "autograd/base/context.h"
#include "autograd/kernels/kernel.h"

namespace ink {

/// Dropout of the branch that add_norm adds, with the mask of ops/dropout.cpp. p = 0: none.
struct BranchDropout {
  double p = 0;
  RandomPosition at = {};
};
/// weight and bias (C), f32, or f64 for f64. layer_norm may have no bias; rms_norm has none.
struct NormParameters {
  Array weight, bias;
  double eps;
  BranchDropout dropout = {};

  auto arrays() const { return std::tie(weight, bias); }
};
/// If `accumulate`, the kernel adds to dx. dbranch gets dx in dy's dtype, after dropout. Undefined
/// ones are skipped.
struct NormGradients {
  Array dx, dweight, dbias;
  bool accumulate;
  Array dbranch = {};
  BranchDropout dropout = {};

  auto arrays() const { return std::tie(dx, dweight, dbias, dbranch); }
};

// clang-format off

// ---- ops/softmax.cpp, log_softmax.cpp: over the last dimension
KERNEL(softmax, Array& y, const Array& x)
KERNEL(softmax_backward, Array& dx, const Array& dy, const Array& y)
KERNEL(log_softmax, Array& y, const Array& x)
KERNEL(log_softmax_backward, Array& dx, const Array& dy, const Array& y)

// ---- ops/layer_norm.cpp: x (rows, C); y as x, or bf16 for f32
// mean, rstd (rows): f32, or f64 for f64. Without mean and bias: rms_norm.
KERNEL(layer_norm, Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p)
// The same of sum = x + branch; sum as x, branch as y.
KERNEL(add_norm, Array& sum, Array& y, Array& mean, Array& rstd, const Array& x,
       const Array& branch, const NormParameters& p)
KERNEL(layer_norm_backward, NormGradients d, const Array& dy, const Array& x, const Array& mean,
       const Array& rstd, const Array& weight)

// ---- ops/cross_entropy.cpp
// scale: 1 / the number of targets that count.
KERNEL(target_scale, Array& scale, const Array& targets, int64_t ignore_index)
// loss      one loss for each target, or (): scale times their sum
// logits    contiguous, or the first columns of a matrix whose width is a multiple of 8
// dlogits   if defined: scale times the gradient of their sum, as logits, or bf16 for f32; may be
//           logits itself
// scale     1 if undefined
// z_loss    adds z_loss (log sum exp logits)^2 to each loss
// loss and scale are f32, or f64 for f64.
KERNEL_STRIDED(cross_entropy, Array& loss, Array& dlogits, const Array& logits,
               const Array& targets, const Array& scale, int64_t ignore_index, double z_loss)

// ---- ops/embedding.cpp
KERNEL(embedding, Array& y, const Array& ids, const Array& weight)
// Adds to dweight, which is f32 for bf16.
KERNEL(embedding_backward, Array& dweight, const Array& dy, const Array& ids)

// ---- ops/rotary.cpp: x and y (..., T, d) with contiguous rows; cos and sin (..., T, pairs), of
// as many dimensions, f32, or f64 for f64, with contiguous rows. back: by negative angles.
KERNEL_STRIDED(rotary, Array& y, const Array& x, const Array& cos, const Array& sin,
               bool interleaved, bool back)

// ---- ops/dropout.cpp: y = x mask
KERNEL(dropout, Array& y, const Array& x, double p, const RandomPosition& at)

// ---- ops/sample.cpp: ids i64 (..., 1) of probabilities (..., V)
KERNEL(sample, Array& ids, const Array& probabilities, const RandomPosition& at)

// clang-format on

}  // namespace ink
