// Matrix products, C = A B or C += A B: one description for CPUs and cuBLASLt.
//
// kernel::gemm(c, a, b, accumulate) takes a (..., m, k), b (..., k, n) and c (..., m, n)
// with equal leading dimensions, the batch. A transposed matrix is a transposed view, and a
// repeated one has batch strides of 0. So the strides say all, and this header turns them into the
// flags and leading dimensions of BLAS. Unless it accumulates, gemm reads nothing from c.
//
// dtypes: all three f32, all f64, or all i64; or any of the three bf16 and the others f32 (sums are
// in f32). An f32 operand beside a bf16 one may be rounded to bf16 (gemm/units.h), because the
// result has bf16's precision anyway. gemm_bias(c, a, b, bias) is c = a b + bias (n) in every row.
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

/// x itself if it has the dtype and a matrix layout, otherwise a copy that has both. Matrices that
/// are repeated over the batch are copied once and stay repeated.
Array as_gemm_operand(const Array& x, DType dtype);

/// x (..., n) as a matrix (rows, n) of its rows, on the same memory where the strides allow it.
Array as_rows(const Array& x);

/// The offset of matrix number `index` of x (..., rows, cols), in elements from x's first one.
int64_t batch_offset(const Array& x, int64_t index);

/// The least work for which waking a thread pays, in multiplications: some 5 to 10 us.
inline constexpr int64_t kWorthAThread = 1 << 19;

/// If the address space is limited (ulimit -v) and OpenBLAS multiplies here, makes it allocate its
/// memory now, 128 MB for each thread, because OpenBLAS retries for ever when memory is short.
/// Throws if there is not enough.
void take_gemm_memory(int64_t threads);

/// The units behind the CPU's products, and the version of OpenBLAS: "AVX-512 for float32, float64;
/// AVX-512 with bf16 for bfloat16; OpenBLAS 0.3.21, SkylakeX kernels". In a portable build it also
/// names the processors for which the other kernels were compiled.
std::string gemm_backend();

}  // namespace ink
