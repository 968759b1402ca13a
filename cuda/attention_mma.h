// Attention on tensor cores: what attention.cu and attention_backward.cu call where it suits.
#pragma once

#include <initializer_list>

#include "autograd/kernels.h"

namespace ink::cuda {

/// Do these kernels take the problem? bf16, heads of at most 128 elements in rows that can be read
/// in aligned chunks of eight, and no gradient of the mask. rows: what they read and write.
bool suits_attention_mma(const Tensor& mask, const AttentionRule& rule,
                         std::initializer_list<const Tensor*> rows);

void attention_mma(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& mask, const AttentionRule& rule);
void attention_mma_backward(Tensor& dq, Tensor& dk, Tensor& dv, const Tensor& dout,
                            const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                            const Tensor& v, const Tensor& mask, const AttentionRule& rule);

}  // namespace ink::cuda
