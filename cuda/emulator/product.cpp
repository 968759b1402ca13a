// Matrix products of the emulated GPU, computed by the CPU's gemm.
#include "cuda/product.h"

#include <cuda_runtime.h>

#include <memory>

#include "autograd/kernels/elementwise.h"
#include "autograd/kernels/gemm.h"
#include "autograd/kernels/reduce.h"

namespace ink::cuda {
namespace {

Array on_memory(void* memory, DType dtype, const Layout& layout) {
  return {std::make_shared<Storage>(memory, 0, cpu_device, [](void*) {}), layout, dtype};
}

Array seen(const Matrices& x, int64_t batch, int64_t rows, int64_t cols) {
  const auto [transposed, ld] = x.layout;
  const Shape strides{x.step, transposed ? 1 : ld, transposed ? ld : 1};
  return on_memory(x.data, x.dtype, {{batch, rows, cols}, strides, 0});
}

}  // namespace

void product(const Product& p) {
  INK_CHECK(p.batch <= kMostMatrices, p.op, ": ", p.batch, " matrices in one product");
  INK_CHECK(reinterpret_cast<uintptr_t>(p.bias) % kBiasAlignment == 0, p.op, ": bias not aligned");
  INK_CHECK(p.epilogue == Epilogue::none || allows_epilogue(p), p.op,
            ": not a product for its epilogue");
  emulator::on_device(p.op, [p] {
    const Array a = seen(p.a, p.batch, p.m, p.k), b = seen(p.b, p.batch, p.k, p.n);
    Array c = seen(p.c, p.batch, p.m, p.n), bias;
    if (p.bias != nullptr) bias = on_memory(const_cast<void*>(p.bias), p.c.dtype, {{p.n}, {1}, 0});
    if (p.epilogue == Epilogue::row_sums) {
      Array sums = on_memory(p.aux, p.c.dtype, {{p.m}, {1}, 0});
      cpu::sum_rows(sums, Array(*a.reshaped({p.m, p.k})).transposed(), false);
    } else if (p.epilogue != Epilogue::none) {
      Array aux = seen({p.aux, p.c.dtype, p.c.layout, p.c.step}, p.batch, p.m, p.n);
      if (p.epilogue == Epilogue::gelu) {
        cpu::gemm_bias(aux, a, b, bias);
        return cpu::unary(c, aux, UnaryOp::gelu_tanh);
      }
      cpu::gemm(c, a, b, false);
      return cpu::unary_backward(c, c, aux, UnaryOp::gelu_tanh);
    }
    if (!bias.defined()) return cpu::gemm(c, a, b, p.accumulate);
    cpu::gemm_bias(c, a, b, bias);
  });
}

bool has_epilogue(const Product& p) { return allows_epilogue(p) && wants_epilogue(p, true); }

}  // namespace ink::cuda
