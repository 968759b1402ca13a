// Attention on tensor cores: what forward.cu and backward.cu call where it suits.
#pragma once

#include <initializer_list>

#include "autograd/kernels/attention.h"

namespace ink::cuda {

/// Do these kernels take the problem? bf16, heads of at most 128 elements in rows that can be read
/// in aligned chunks of eight, and no gradient of the mask. rows: what they read and write.
bool suits_attention_mma(const Array& mask, const AttentionRule& rule,
                         std::initializer_list<const Array*> rows);

void attention_mma(Array& out, Array& lse, const AttentionInputs& in);
void attention_mma_backward(AttentionGradients& d, const Array& dout, const Array& out,
                            const Array& lse, const AttentionInputs& in);

}  // namespace ink::cuda
