// Matrix products, C = alpha A B or C += alpha A B: one description for OpenBLAS and cuBLASLt.
//
// kernel::gemm(c, a, b, alpha, accumulate) takes a (..., m, k), b (..., k, n) and c (..., m, n)
// with equal leading dimensions, the batch. A transposed matrix is a transposed view, a repeated
// one has batch strides of 0: the tensors' own strides say it all, and this header turns them into
// the flags and leading dimensions of BLAS. Unless it accumulates, it reads nothing from c.
//
// dtypes: f32 and f64 throughout; bf16 for any of the three beside f32 (sums are in f32); i64. An
// f32 operand beside one of bf16 may be rounded to bf16, too (gemm/units.h); precision is bf16's
// either way. gemm_bias(c, a, b, bias) is c = a b + bias (n) in every row.
#pragma once

#include <optional>
#include <string>

#include "autograd/memory/array.h"

namespace ink {

/// How a matrix lies in memory: element (i, j) at i * ld + j, or at j * ld + i when transposed.
struct MatrixLayout {
  bool transposed = false;
  int64_t ld = 1;  // leading dimension, in elements
};

/// The layout of the last two dimensions of x; none when neither has stride 1, or rows overlap.
std::optional<MatrixLayout> matrix_layout(const Array& x);

/// x itself if it has the dtype and a matrix layout, a copy that does otherwise. Matrices repeated
/// over the batch are copied once and stay repeated.
Array as_gemm_operand(const Array& x, DType dtype);

/// x (..., n) as a matrix (rows, n) of its rows, on the same memory where the strides allow it.
Array as_rows(const Array& x);

/// Where matrix number `index` of x (..., rows, cols) begins, in elements from x's first one.
int64_t batch_offset(const Array& x, int64_t index);

/// Where the address space is limited (ulimit -v): lets OpenBLAS take its memory, 128 MB a thread,
/// now, because it asks for ever where it cannot have it. Throws where there is not enough.
void take_gemm_memory(int64_t threads);

/// The library behind the CPU's products and the kernel family it chose, as in
/// "OpenBLAS 0.3.21, SkylakeX kernels". In a portable build also what the other kernels were
/// compiled for.
std::string gemm_backend();

}  // namespace ink
