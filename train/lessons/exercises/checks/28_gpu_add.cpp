#include <cmath>

#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/kernels.h"

namespace ink {
namespace gpu_add_check {

constexpr int64_t kThreads = 256;

Tensor op(KernelRuns& kernel, const Tensors& x) {
  const int64_t n = x[0].numel();
  kernel.enough("a", n);
  kernel.enough("b", n);
  const Tensor y = kernel.run({(n + kThreads - 1) / kThreads, 1}, kThreads, {n},
                              {{"a", x[0]}, {"b", x[1]}}, {n});
  return record("gpu_add", x, y, [](const Tensor& dy) -> Grads { return {dy, dy}; });
}

Tensor library(const Tensors& x) { return x[0] + x[1]; }

// a + b in the first elements, and nothing in the others.
Tensor first_only(const Tensors& x, int64_t count) {
  const Tensor y = full({x[0].numel()}, std::nan(""));
  if (count > 0) y.narrow(0, 0, count).copy_((x[0] + x[1]).narrow(0, 0, count));
  return y;
}
Tensor no_block(const Tensors& x) { return first_only(x, std::min(x[0].numel(), kThreads)); }
Tensor no_thread(const Tensors& x) {
  return first_only(x, (x[0].numel() + kThreads - 1) / kThreads);
}
Tensor not_the_last(const Tensors& x) {
  return first_only(x, std::max<int64_t>(0, x[0].numel() - 1));
}

Case of(const std::string& name, int64_t n) {
  return {name, {noise(1, {n}), noise(2, {n}), noise(3, {n})}};
}

}  // namespace gpu_add_check

Exercise gpu_add_exercise(const CudaKernel& kernel) {
  using namespace gpu_add_check;
  Task task = kernel_task("gpu_add", {"y", "da", "db"}, kernel, op, library);
  task.cases = {of("5 numbers", 5), of("300 numbers, two blocks", 300),
                of("512 numbers, as many as threads", 512), of("no numbers", 0)};
  task.mistakes = {
      kernel_mistake(no_block, task,
                     "All blocks do the first 256 numbers: i lacks the block's part, "
                     "blockIdx.x * blockDim.x."),
      kernel_mistake(no_thread, task,
                     "Each block does one number, in all its threads: i lacks threadIdx.x."),
      kernel_mistake(not_the_last, task,
                     "The last number is left out: the thread with i == n - 1 has work, too.")};
  return {
      "28_gpu_add",
      "its own page and cuda/README.md",
      {"Where does block 1 begin, if block 0 did the numbers 0 to 255?",
       "Block b begins with the number b * blockDim.x, and its thread t does the t-th from there.",
       "int i = blockIdx.x * blockDim.x + threadIdx.x; then y[i] = a[i] + b[i], but only where "
       "i < n."},
      {"cuda/elementwise.cuh", "struct Map {",
       "One kernel serves all elementwise ops, and any strides. A thread takes several "
       "elements side by side, so that each of its accesses asks for up to 16 bytes."},
      {task},
      ".cu"};
}

}  // namespace ink
