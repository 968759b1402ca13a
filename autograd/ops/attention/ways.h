// Ways to compute attention on a CPU that suit some problems only, and are then faster.
#pragma once

#include "autograd/kernels/attention.h"

namespace ink::cpu {

// ---- decode.cpp: few queries, as when a model writes text token by token

/// Are there few queries, with contiguous rows, no mask but the diagonal, and no dropout?
bool suits_attention_decode(const AttentionInputs& in);
void attention_decode(Array& out, Array& lse, const AttentionInputs& in);

// ---- bf16.cpp: bf16 on a unit of the processor (gemm/units.h). The products of attention.cpp for
// a head's tiles of queries and keys; scores are in f32, and weights are rounded to bf16.

/// Is there a unit that multiplies bf16 without converting it to f32, and does the problem suit it?
/// It must be bf16 with contiguous rows, no mask but the diagonal and the window, no dropout, and
/// heads of keys for every thread.
bool suits_attention_bf16(const AttentionInputs& in);
void attention_bf16(Array& out, Array& lse, const AttentionInputs& in);
void attention_bf16_backward(AttentionGradients& d, const Array& dout, const Array& out,
                             const Array& lse, const AttentionInputs& in);

}  // namespace ink::cpu
