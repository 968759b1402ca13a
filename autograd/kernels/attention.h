// Kernels: attention.
#pragma once

#include <tuple>

#include "autograd/base/context.h"
#include "autograd/kernels/kernel.h"

namespace ink {

/// How attention weighs. Query i sees keys 0 .. i + diagonal; diagonal = S, their number: all keys.
struct AttentionRule {
  double scale;
  int64_t diagonal;
  double dropout_p;
  RandomPosition random;  // of dropout
  int64_t window = 0;     // of these keys, only the last so many; 0: all
};

/// q (..., T, d), k (..., S, d), v (..., S, dv); mask: bool, or f32 (f64 for f64), which broadcasts
/// to (..., T, S), or undefined.
struct AttentionInputs {
  Array q, k, v, mask;
  AttentionRule rule;

  /// (..., T, S)
  Shape scores_shape() const {
    Shape shape = q.shape();
    shape.back() = k.size(-2);
    return shape;
  }
  auto arrays() const { return std::tie(q, k, v, mask); }
};
/// Each has the shape and dtype of its input; dmask is contiguous.
struct AttentionGradients {
  Array dq, dk, dv, dmask;

  auto arrays() const { return std::tie(dq, dk, dv, dmask); }
};

// clang-format off

// ---- ops/attention/forward.cpp, backward.cpp: out (..., T, dv)
// lse (..., T), f32, or f64 for f64: log of the sum of exp(scores), -inf if a query sees nothing.
KERNEL_STRIDED(attention, Array& out, Array& lse, const AttentionInputs& in)
KERNEL_STRIDED(attention_backward, AttentionGradients d, const Array& dout, const Array& out,
               const Array& lse, const AttentionInputs& in)

// clang-format on

}  // namespace ink
