// Attention of few queries to many keys: what attention.cu calls where it suits.
#pragma once

#include "autograd/kernels.h"

namespace ink::cuda {

/// At most four queries a head and more than 64 keys, heads of at most 256 elements, no dropout.
bool suits_attention_decode(const Tensor& q, const Tensor& v, const AttentionRule& rule);

void attention_decode(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& mask, const AttentionRule& rule);

}  // namespace ink::cuda
