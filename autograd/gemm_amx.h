// Matrix products on the tile unit of recent Intel processors (AMX, bf16).
//
// bf16 operands enter as they are. An f32 is the sum of three bf16, each the rounded rest of those
// before: x = x1 + x2 + x3, 8 bits of its 24 in each. Of the nine products of a b the six with
// indices i + j <= 4 are computed; the other three are below 2^-26 of it, under f32's own rounding.
// All products of bf16 are exact in f32 and sums run in f32, so the result is as good as that of
// f32 arithmetic (test_gemm_amx measures both against f64), at 6/16 of its multiplications.
//   Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
//   Higher-Precision Computations, 2019.
#pragma once

#include "autograd/gemm.h"

namespace ink::amx {

/// Does this processor have the unit, and does the system let us use it? INKLING_CPU_CAPABILITY in
/// the environment, set to avx512, says no.
bool available();

/// A matrix in memory, of f32 or bf16.
struct Operand {
  const void* data;
  bool is_bf16;
  MatrixLayout layout;

  /// The part of it that begins at (row, col).
  Operand from(int64_t row, int64_t col) const {
    const int64_t at = layout.transposed ? col * layout.ld + row : row * layout.ld + col;
    return {static_cast<const char*>(data) + at * (is_bf16 ? 2 : 4), is_bf16, layout};
  }
};

/// The f32 or bf16 rows of a result, ld elements apart.
struct Result {
  void* data;
  bool is_bf16;
  int64_t ld;
};

/// The inner dimension up to which a product can be written as bf16: longer ones are summed in
/// parts, which only f32 can hold.
inline constexpr int64_t kLongestInner = 1024;

/// Bytes of scratch memory that product() needs, aligned to 64.
int64_t scratch_bytes(int64_t m, int64_t n, int64_t k);

/// c = a b, c = a b + bias in every row (bias: n numbers, or null), or c += a b (f32 only), on the
/// calling thread, for a (m, k), b (k, n) and c (m, n). Two f32 operands give f32's precision; with
/// one of bf16, the other one is rounded to bf16, too. Returns false if an f32 operand holds what
/// three bf16 cannot stand for (infinity, NaN, or a number that rounds to infinity): then c is
/// unchanged if it accumulates, undefined otherwise.
bool product(int64_t m, int64_t n, int64_t k, const Operand& a, const Operand& b, const Result& c,
             bool accumulate, const float* bias, void* scratch);

/// to[i] = factor from[i], rounded to bf16 by the processor.
void round_row(bfloat16* to, const float* from, int64_t n, float factor);

}  // namespace ink::amx
