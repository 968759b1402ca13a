// Kernels of attention that forward.cu and backward.cu call for problems that suit them.
#pragma once

#include <initializer_list>

#include "autograd/kernels/attention.h"

namespace ink::cuda {

/// Few queries: at most four of a head, to more than 64 keys, heads of at most 256 elements, no
/// dropout.
bool suits_attention_decode(const AttentionInputs& in);
void attention_decode(Array& out, Array& lse, const AttentionInputs& in);

/// Tensor cores: bf16, with heads of at most 128 elements, in rows that can be read in aligned
/// chunks of eight, and without a gradient of the mask. rows: all arrays that the kernels read and
/// write.
bool suits_attention_mma(const Array& mask, const AttentionRule& rule,
                         std::initializer_list<const Array*> rows);

void attention_mma(Array& out, Array& lse, const AttentionInputs& in);
void attention_mma_backward(AttentionGradients& d, const Array& dout, const Array& out,
                            const Array& lse, const AttentionInputs& in);

/// The same on Hopper's own instructions, for problems without a mask and heads of 33 to 128
/// elements. With dropout, draws take longer than products, and more warps draw faster, so it is
/// left to the others unless INKLING_WGMMA=1. A hidden NaN may reach those in its tile here.
bool suits_attention_wgmma(const AttentionInputs& in);
void attention_wgmma(Array& out, Array& lse, const AttentionInputs& in);

}  // namespace ink::cuda
