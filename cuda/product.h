// The interface of matrix products: cuBLASLt computes them on a GPU (cublas.cu), and the CPU's gemm
// under emulation (cuda/emulator/product.cpp).
#pragma once

#include <cstdint>
#include <cstdlib>

#include "autograd/gemm/gemm.h"

namespace ink::cuda {

/// The most matrices of one product, because some of cuBLASLt's algorithms number them in a grid's
/// third dimension.
inline constexpr int64_t kMostMatrices = 65535;

/// `batch` matrices, `step` elements apart; 0 repeats one.
struct Matrices {
  void* data;
  DType dtype;
  MatrixLayout layout;
  int64_t step;
};

inline constexpr uintptr_t kBiasAlignment = 16;

/// What a product does besides, as elements are written. gelu is its tanh form.
enum class Epilogue {
  none,
  gelu,           // aux = A B + bias, C = gelu(aux)
  gelu_gradient,  // C = (A B) gelu'(aux)
  row_sums,       // aux (m) = the sums of A's rows, whether C = A B or C += A B
};

/// One of these, of A (m, k), B (k, n) and C (m, n), in rows:
///   C = A B
///   C += A B
///   C = A B + bias    bias (n), of C's dtype, in every row; f32 and bf16 only
/// A and B have one dtype: f64 (then C, too), f32 (then C, too), or bf16, with C f32 or bf16. Sums
/// of bf16 are in f32.
struct Product {
  const char* op;
  int64_t m, n, k, batch;
  Matrices a, b, c;
  bool accumulate;
  const void* bias;  // null: none; else at a multiple of kBiasAlignment: it is read in packs
  Epilogue epilogue = Epilogue::none;
  void* aux = nullptr;  // of an epilogue: of C's dtype, and of its layout unless it is row_sums
};

void product(const Product& product);

/// May cuBLASLt be asked for this epilogue? It needs aux, and the rows of gelu's, aligned to packs.
/// Only bf16 is allowed for gelu, because the precision of cuBLASLt's has not been measured yet.
inline bool allows_epilogue(const Product& p) {
  const bool aligned = reinterpret_cast<uintptr_t>(p.aux) % 16 == 0 && p.batch == 1;
  if (p.epilogue == Epilogue::row_sums) return aligned && p.c.dtype != f64;
  return aligned && p.c.dtype == bf16 && p.c.layout.ld % 8 == 0;
}

/// True if cuBLASLt supports this epilogue and fusing it is faster. If not, a kernel follows the
/// plain product. In the environment, INKLING_GELU_EPILOGUE=0 never fuses gelu, and 1 fuses it
/// wherever cuBLASLt can; INKLING_BIAS_EPILOGUE does the same for the sums of rows. The default is
/// 1 on Hopper and later. gelu's fused kernels for older GPUs are slower; sums were not measured.
bool has_epilogue(const Product& product);
inline bool wants_epilogue(const Product& p, bool by_default) {
  const char* set = std::getenv(p.epilogue == Epilogue::row_sums ? "INKLING_BIAS_EPILOGUE"
                                                                 : "INKLING_GELU_EPILOGUE");
  return set == nullptr || set[0] == '\0' ? by_default : set[0] == '1';
}

}  // namespace ink::cuda
