// Attention of bf16 on a unit of the processor (gemm/units.h): the products of attention.cpp for a
// head's tiles of queries and keys. The scores are in f32, and the weights are rounded to bf16.
#pragma once

#include "autograd/kernels/attention.h"

namespace ink::cpu {

/// Is there a unit that multiplies bf16 without converting it to f32, and does the problem suit it?
/// It must be bf16 with contiguous rows, no mask but the diagonal and the window, no dropout, and
/// heads of keys for every thread.
bool suits_attention_bf16(const AttentionInputs& in);

void attention_bf16(Array& out, Array& lse, const AttentionInputs& in);
void attention_bf16_backward(AttentionGradients& d, const Array& dout, const Array& out,
                             const Array& lse, const AttentionInputs& in);

}  // namespace ink::cpu
