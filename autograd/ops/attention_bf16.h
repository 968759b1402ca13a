// Attention of bf16 on a unit of the processor (gemm_units.h): the products of attention.cpp for a
// head's tiles of queries and keys, with the scores in f32 and the weights rounded to bf16 between
// them.
#pragma once

#include "autograd/kernels.h"

namespace ink::cpu {

/// Is there a unit, and does the problem suit it: bf16, rows in one piece, a head of keys for
/// each head of queries, no mask but the diagonal, no dropout, and heads for every thread?
bool suits_attention_bf16(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const AttentionRule& rule);

void attention_bf16(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                   const AttentionRule& rule);
void attention_bf16_backward(Tensor& dq, Tensor& dk, Tensor& dv, const Tensor& dout,
                            const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                            const Tensor& v, const AttentionRule& rule);

}  // namespace ink::cpu
