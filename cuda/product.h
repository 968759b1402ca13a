// The one description of a matrix product that cuBLASLt answers on a GPU (cublas.cu) and OpenBLAS
// under emulation (tests/emulator/product.cpp).
#pragma once

#include <cstdint>

#include "autograd/gemm.h"

namespace ink::cuda {

/// Of one product: some of cuBLASLt's algorithms number them in a grid's third dimension.
inline constexpr int64_t kMostMatrices = 65535;

/// `batch` matrices, `step` elements apart; 0 repeats one.
struct Matrices {
  void* data;
  DType dtype;
  MatrixLayout layout;
  int64_t step;
};

inline constexpr uintptr_t kBiasAlignment = 16;

/// C = alpha A B, or C += alpha A B; A (m, k), B (k, n), C (m, n), in rows. A and B have one dtype:
/// f64 (then C, too), f32 (then C, too), or bf16, with C f32 or bf16; sums of bf16 are in f32. Or
/// C = A B + bias (n), of C's dtype, in every row: f32 and bf16 only.
struct Product {
  const char* op;
  int64_t m, n, k, batch;
  Matrices a, b, c;
  double alpha;
  bool accumulate;
  const void* bias;  // null: none; else at a multiple of kBiasAlignment, for it is read in packs
};

void product(const Product& product);

}  // namespace ink::cuda
