#include <algorithm>

#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/kernels.h"

namespace ink {
namespace gpu_product_check {

constexpr int64_t kTile = 16;

int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }

Tensor launched(KernelRuns& kernel, const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  kernel.enough("a", m * k * tiles(n));
  kernel.enough("b", k * n * tiles(m));
  return kernel.run({tiles(n), tiles(m)}, kTile * kTile, {m, n}, {{"a", a}, {"b", b}}, {m, k, n});
}

Tensor op(KernelRuns& kernel, const Tensors& x) {
  const Tensor y = launched(kernel, x[0], x[1]);
  return record("gpu_product", x, y,
                [&kernel, a = x[0].detach(), b = x[1].detach()](const Tensor& dy) -> Grads {
                  return {launched(kernel, dy, b.T()), launched(kernel, a.T(), dy)};
                });
}

Tensor library(const Tensors& x) { return matmul(x[0], x[1]); }

// a b, of the columns of a from `begin` on, below `end`.
Tensor part(const Tensors& x, int64_t begin, int64_t end) {
  return matmul(x[0].narrow(1, begin, end - begin), x[1].narrow(0, begin, end - begin));
}
Tensor first_tile(const Tensors& x) { return part(x, 0, std::min(x[0].size(1), kTile)); }
Tensor last_tile(const Tensors& x) {
  const int64_t k = x[0].size(1);
  return part(x, (tiles(k) - 1) * kTile, k);
}
Tensor whole_tiles(const Tensors& x) { return part(x, 0, x[0].size(1) / kTile * kTile); }

// Quarters: products and sums are exact in f32.
Tensor quarters(uint64_t seed, const Shape& shape) { return round(noise(seed, shape) * 4) / 4; }
Case of(const std::string& name, int64_t m, int64_t k, int64_t n) {
  return {name, {quarters(1, {m, n}), quarters(2, {m, k}), quarters(3, {k, n})}};
}

}  // namespace gpu_product_check

Exercise gpu_product_exercise(const CudaKernel& kernel) {
  using namespace gpu_product_check;
  Task task = kernel_task("gpu_product", {"y", "da", "db"}, kernel, op, library);
  task.cases = {of("one tile", 16, 16, 16), of("a small one", 3, 5, 4),
                of("tiles that are not full", 20, 40, 18), of("a row by a column", 1, 33, 1)};
  task.mistakes = {
      kernel_mistake(first_tile, task,
                     "Only the first 16 products are added: go along k in steps of 16."),
      kernel_mistake(last_tile, task,
                     "Only the last step counts: sum is 0 once, before the loop over k."),
      kernel_mistake(whole_tiles, task,
                     "What is left of k after whole tiles is missing: go on while first < k.")};
  return {
      "30_gpu_product",
      "its own page, exercise 29, and cuda/README.md",
      {"Two arrays of 256 floats in shared memory, a sum in each thread, a loop over k with two "
       "barriers, and one write at the end.",
       "A thread brings a_tile[16 * r + s] = row < m && first + s < k ? a[row * k + first + s] : "
       "0, and the same for b with (first + r < k && column < n).",
       "After __syncthreads(): for (int j = 0; j < 16; ++j) sum += a_tile[16 * r + j] * b_tile[16 "
       "* j + s]; then __syncthreads() again, before the next step writes the tiles."},
      {"cuda/mma.cuh", "__device__ inline void mma_m16n8k16(",
       "The products of attention have larger tiles, which warps multiply by one instruction, "
       "and the next tiles come meanwhile. For all other products the library calls cuBLASLt, "
       "NVIDIA's own."},
      {task},
      ".cu"};
}

}  // namespace ink
