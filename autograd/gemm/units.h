// The processor's units for matrix products, behind one interface. gemm.cpp uses the best one.
// OpenBLAS computes f64, products too small to be packed, and everything on other machines.
//
//   amx          tiles of bf16; an f32 as three bf16             gemm/amx.cpp
//   avx512_bf16  AVX-512, and its products of bf16 for bf16       gemm/avx512.cpp
//   avx512       AVX-512; bf16 becomes f32 on the way in          gemm/avx512.cpp
//
// INKLING_CPU_CAPABILITY in the environment names the best unit allowed; `default` allows none.
#pragma once

#include "autograd/gemm/gemm.h"

namespace ink {

/// A matrix in memory, of f32 or bf16.
struct GemmOperand {
  const void* data;
  bool is_bf16;
  MatrixLayout layout;

  /// The part of it that begins at (row, col).
  GemmOperand from(int64_t row, int64_t col) const {
    const int64_t at = layout.transposed ? col * layout.ld + row : row * layout.ld + col;
    return {static_cast<const char*>(data) + at * (is_bf16 ? 2 : 4), is_bf16, layout};
  }
  GemmOperand transposed() const { return {data, is_bf16, {!layout.transposed, layout.ld}}; }
};

/// The f32 or bf16 rows of a result, ld elements apart.
struct GemmResult {
  void* data;
  bool is_bf16;
  int64_t ld;
};

/// c = a b, c = a b + bias in every row (bias: n numbers, or null), or c += a b (f32 only), for
/// a (m, k), b (k, n) and c (m, n).
struct GemmProduct {
  int64_t m, n, k;
  GemmOperand a, b;
  GemmResult c;
  bool accumulate = false;
  const float* bias = nullptr;
};

/// One unit.
struct GemmUnit {
  const char* name;

  /// Bytes of scratch memory that product() needs, aligned to 64.
  int64_t (*scratch_bytes)(int64_t m, int64_t n, int64_t k);

  /// The product, on the calling thread; sums are in f32. Two f32 operands give f32's precision.
  /// Beside a bf16 operand, the other one may be rounded to bf16, too.
  void (*product)(const GemmProduct& product, void* scratch);

  /// to[i] = factor from[i], rounded to bf16.
  void (*round_row)(bfloat16* to, const float* from, int64_t n, float factor);
};

/// The longest inner dimension of a product with a bf16 result. A longer one is summed in parts,
/// which must be kept in f32.
inline constexpr int64_t kLongestBf16Inner = 1024;

/// The units; null if the processor lacks one or the system does not let us use it.
const GemmUnit* amx_unit();
const GemmUnit* avx512_bf16_unit();
const GemmUnit* avx512_unit();

/// Do products pack or convert operands in memory that the allocator counts? A GPU's library has
/// memory of its own.
bool packs_operands(Device device);

/// The best unit that this machine has and the environment allows, or null.
const GemmUnit* gemm_unit();

}  // namespace ink
