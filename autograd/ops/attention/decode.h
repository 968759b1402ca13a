// Attention of few queries, as when a model writes text token by token.
#pragma once

#include "autograd/kernels/attention.h"

namespace ink::cpu {

/// Are there few queries, with contiguous rows, no mask but the diagonal, and no dropout?
bool suits_attention_decode(const AttentionInputs& in);

void attention_decode(Array& out, Array& lse, const AttentionInputs& in);

}  // namespace ink::cpu
