// Attention of bf16 on the processor's tile unit (gemm_amx.h): the products of attention.cpp for a
// head's tiles of queries and keys, with the scores in f32 and the weights rounded to bf16 between
// them.
#pragma once

#include "autograd/kernels.h"

namespace ink::cpu {

/// Is there the unit, and does the problem suit it: bf16, rows in one piece, a head of keys for
/// each head of queries, no mask but the diagonal, no dropout, and heads for every thread?
bool suits_attention_amx(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const AttentionRule& rule);

void attention_amx(Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                   const AttentionRule& rule);
void attention_amx_backward(Tensor& dq, Tensor& dk, Tensor& dv, const Tensor& dout,
                            const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                            const Tensor& v, const AttentionRule& rule);

}  // namespace ink::cpu
