// Matrix products of the emulated GPU: those of the CPU.
#include "cuda/product.h"

#include <cuda_runtime.h>

#include "autograd/kernels.h"

namespace ink::cuda {
namespace {

Tensor seen(const Matrices& x, int64_t batch, int64_t rows, int64_t cols) {
  const auto [transposed, ld] = x.layout;
  const Shape strides{x.step, transposed ? 1 : ld, transposed ? ld : 1};
  return from_blob(x.data, {1}, {x.dtype, cpu_device}).alias({{batch, rows, cols}, strides, 0});
}

}  // namespace

void product(const Product& p) {
  INK_CHECK(p.batch <= kMostMatrices, p.op, ": ", p.batch, " matrices in one product");
  INK_CHECK(reinterpret_cast<uintptr_t>(p.bias) % kBiasAlignment == 0, p.op, ": bias not aligned");
  INK_CHECK(p.epilogue == Epilogue::none || allows_epilogue(p), p.op, ": not a product for gelu");
  emulator::on_device([p] {
    const Tensor a = seen(p.a, p.batch, p.m, p.k), b = seen(p.b, p.batch, p.k, p.n);
    Tensor c = seen(p.c, p.batch, p.m, p.n), bias;
    if (p.bias != nullptr)
      bias = from_blob(const_cast<void*>(p.bias), {p.n}, {p.c.dtype, cpu_device});
    if (p.epilogue != Epilogue::none) {
      Tensor aux = seen({p.aux, p.c.dtype, p.c.layout, p.c.step}, p.batch, p.m, p.n);
      if (p.epilogue == Epilogue::gelu) return cpu::gemm_gelu(c, aux, a, b, bias);
      return cpu::gemm_gelu_backward(c, a, b, aux);
    }
    if (!bias.defined()) return cpu::gemm(c, a, b, p.alpha, p.accumulate);
    cpu::gemm_bias(c, a, b, bias);
  });
}

bool has_epilogue(const Product& p) { return allows_epilogue(p) && wants_epilogue(true); }

}  // namespace ink::cuda
