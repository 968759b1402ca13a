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
  emulator::on_device([p] {
    const Tensor a = seen(p.a, p.batch, p.m, p.k), b = seen(p.b, p.batch, p.k, p.n);
    Tensor c = seen(p.c, p.batch, p.m, p.n);
    if (p.bias == nullptr) return cpu::gemm(c, a, b, p.alpha, p.accumulate);
    const Tensor bias = from_blob(const_cast<void*>(p.bias), {p.n}, {p.c.dtype, cpu_device});
    cpu::gemm_bias(c, a, b, bias);
  });
}

}  // namespace ink::cuda
