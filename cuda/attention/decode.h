// Attention of few queries to many keys, which forward.cu calls for problems that suit it.
#pragma once

#include "autograd/kernels/attention.h"

namespace ink::cuda {

/// At most four queries a head and more than 64 keys, heads of at most 256 elements, no dropout.
bool suits_attention_decode(const AttentionInputs& in);

void attention_decode(Array& out, Array& lse, const AttentionInputs& in);

}  // namespace ink::cuda
