// The processor's units for matrix products, behind one interface. For each dtype, gemm.cpp takes
// the first one of this list that the processor has and that has such products (choose.cpp).
//
//   amx          tiles of bf16; an f32 as three bf16               gemm/amx.cpp
//   avx512_bf16  AVX-512's products of bf16                        gemm/avx512.cpp
//   avx512       AVX-512; bf16 becomes f32 on the way in           gemm/avx512.cpp
//   avx2         AVX2 and FMA, likewise                            gemm/vectors.cpp
//   neon         NEON, likewise                                    gemm/vectors.cpp
//   default      OpenBLAS, which has no products of bf16           gemm/openblas.cpp
//
// INKLING_CPU_CAPABILITY in the environment names the first of this list that may be used, unless
// the context does (Context::first_unit).
#pragma once

#include <string>
#include <vector>

#include "autograd/gemm/gemm.h"

namespace ink {

/// A matrix in memory, of f32, bf16 or f64.
struct GemmOperand {
  const void* data;
  DType dtype;
  MatrixLayout layout;

  /// The same, `offset` elements further on.
  GemmOperand at(int64_t offset) const {
    return {static_cast<const char*>(data) + offset * size_of(dtype), dtype, layout};
  }
  /// The part of it that begins at (row, col).
  GemmOperand from(int64_t row, int64_t col) const {
    return at(layout.transposed ? col * layout.ld + row : row * layout.ld + col);
  }
  GemmOperand transposed() const { return {data, dtype, {!layout.transposed, layout.ld}}; }
};

/// The rows of a result of f32, bf16 or f64, ld elements apart.
struct GemmResult {
  void* data;
  DType dtype;
  int64_t ld;

  /// The part of it that begins at (row, col).
  GemmResult from(int64_t row, int64_t col) const {
    return {static_cast<char*>(data) + (row * ld + col) * size_of(dtype), dtype, ld};
  }
};

/// c = a b, c = a b + bias in every row, or c += a b (not into bf16), for a (m, k), b (k, n) and
/// c (m, n). Either all are f64, or each is f32 or bf16.
struct GemmProduct {
  int64_t m, n, k;
  GemmOperand a, b;
  GemmResult c;
  bool accumulate = false;
  const void* bias = nullptr;  ///< n numbers: f32, or f64 for f64; or null

  /// What it is a product of: bf16 if one of the operands is.
  DType dtype() const { return a.dtype == bf16 || b.dtype == bf16 ? bf16 : a.dtype; }
};

/// One unit.
struct GemmUnit {
  const char* name;   ///< in INKLING_CPU_CAPABILITY
  const char* title;  ///< for people

  /// Does it have products of this dtype?
  bool (*multiplies)(DType);

  /// Is a product large enough for it? Null: every product is.
  bool (*pays)(DType dtype, int64_t m, int64_t n, int64_t k);

  /// Bytes of scratch memory that product() needs, aligned to 64.
  int64_t (*scratch_bytes)(DType dtype, int64_t m, int64_t n, int64_t k);

  /// The product, on the calling thread. Sums are in f32, or f64 for f64. Two f32 operands give
  /// f32's precision. Beside a bf16 operand, the other one may be rounded to bf16, too.
  void (*product)(const GemmProduct& product, void* scratch);

  /// to[i] = factor from[i], rounded to bf16. Null if it multiplies no bf16, or converts it to f32.
  void (*round_row)(bfloat16* to, const float* from, int64_t n, float factor);

  /// Multiplies and adds in registers alone, as fast as the unit can (its peak): `rounds` times the
  /// same. Returns the FLOPs of products of this dtype for which that would have been enough.
  double (*keep_busy)(DType dtype, int64_t rounds);
};

/// The longest inner dimension of a product with a bf16 result. A longer one is summed in parts,
/// which must be kept in f32.
inline constexpr int64_t kLongestBf16Inner = 1024;

/// The units that this machine has, in the order of the list above.
const std::vector<const GemmUnit*>& gemm_units();

/// FLOP/s of a thread at products of this dtype that fit in the caches, measured now: one for each
/// unit, 0 if it has none. Takes some milliseconds.
std::vector<double> gemm_rates(DType dtype,
                               const std::vector<const GemmUnit*>& units = gemm_units());

/// The unit for products of this dtype, or for those too small for the best one. Null if none has
/// such products.
const GemmUnit* gemm_unit(DType dtype, bool small = false);

/// OpenBLAS, and its version and kernels, as in "OpenBLAS 0.3.21, SkylakeX kernels".
const GemmUnit* openblas_unit();
std::string openblas_version();

/// x and c, or the first of their matrices; the others lie at batch_offset().
GemmOperand operand_of(const Array& x);
GemmResult result_of(Array& c);

}  // namespace ink
