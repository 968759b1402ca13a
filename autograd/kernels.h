// The seam between CPU and CUDA: every kernel, in one header a family (kernels/kernel.h says how a
// kernel is declared).
#pragma once

#include "autograd/kernels/attention.h"    // attention and its backward
#include "autograd/kernels/copy.h"         // fill, copy
#include "autograd/kernels/elementwise.h"  // unary, binary, where, masked_fill, compare
#include "autograd/kernels/gemm.h"         // gemm, gemm_bias, gemm_gelu
#include "autograd/kernels/kernel.h"
#include "autograd/kernels/lines.h"      // scan, sort, gather, scatter, triangle
#include "autograd/kernels/optimizer.h"  // gradient_norm, adamw, sgd
#include "autograd/kernels/reduce.h"     // reduce, arg_reduce, reduce_var, sum_rows
#include "autograd/kernels/rows.h"       // softmax, norms, losses, embedding, dropout
