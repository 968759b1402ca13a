#include <cmath>

#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/kernels.h"

namespace ink {
namespace gpu_softmax_check {

constexpr int64_t kThreads = 64;

Tensor op(KernelRuns& kernel, const Tensors& x) {
  // For the largest (of which `if (x[i] > m) m = x[i]` reads most twice), the sum and y.
  kernel.enough("x", 4 * x[0].numel());
  const Tensor y =
      kernel.run({x[0].size(0), 1}, kThreads, x[0].shape(), {{"x", x[0]}}, {x[0].size(1)});
  return record("gpu_softmax", x, y, [y = Saved::output(y)](const Tensor& dy) -> Grads {
    return {*y * (dy - sum(dy * *y, {-1}, /*keepdim=*/true))};
  });
}

Tensor library(const Tensors& x) { return softmax(x[0], -1); }

Tensor no_max(const Tensors& x) {
  const Tensor e = exp(x[0].to(f32)).to(f64);
  return e / sum(e, {-1}, true);
}
Tensor max_from_zero(const Tensors& x) {
  const Tensor m = maximum(amax(x[0], {-1}, true), scalar(0)), e = exp((x[0] - m).to(f32)).to(f64);
  return e / sum(e, {-1}, true);
}
Tensor not_divided(const Tensors& x) { return exp(x[0] - amax(x[0], {-1}, true)); }
Tensor one_column_each(const Tensors& x) {
  const int64_t count = std::min(x[0].size(1), kThreads);
  const Tensor y = full(x[0].shape(), std::nan(""));
  y.narrow(1, 0, count).copy_(softmax(x[0].narrow(1, 0, count), -1));
  return y;
}

Case of(const std::string& name, const Shape& shape) {
  return {name, {noise(1, shape), noise(2, shape)}};
}

}  // namespace gpu_softmax_check

Exercise gpu_softmax_exercise(const CudaKernel& kernel) {
  using namespace gpu_softmax_check;
  Task task = kernel_task("gpu_softmax", {"y", "dx"}, kernel, op, library);
  const Tensor dy = noise(1, {2, 3});
  task.cases = {
      of("rows shorter than a block", {3, 20}),
      of("rows longer than a block", {2, 150}),
      of("one number in a row", {4, 1}),
      {"large numbers", {dy, tensor({{1000.0, 999.0, 0.0}, {100.0, 1.0, 0.5}}, f64)}},
      {"all far below 0", {dy, tensor({{-200.0, -201.0, -203.0}, {-1.0, -2.0, 0.5}}, f64)}}};
  task.mistakes = {
      kernel_mistake(no_max, task,
                     "The largest number is not subtracted, so exp overflows. Or it is, in one of "
                     "the two places only."),
      kernel_mistake(max_from_zero, task,
                     "The search for the largest begins with 0, so that of negative numbers is not "
                     "found. Begin with -INFINITY."),
      kernel_mistake(not_divided, task,
                     "This is exp(x - m). It is to be divided by the row's sum."),
      kernel_mistake(one_column_each, task,
                     "Only the first 64 columns are done: each thread has a loop, t, t + 64, ... "
                     "below n.")};
  return {
      "29_gpu_softmax",
      "its own page and cuda/README.md",
      {"Write three loops over the thread's columns: for the largest, for the sum, and for y. "
       "After each of the first two the block joins what its threads have.",
       "A thread without columns still takes part: it brings -INFINITY for the largest, 0 for "
       "the sum. The loop of halves has its __syncthreads() outside of the `if (t < half)`.",
       "part[t] = largest; __syncthreads(); the loop of halves with fmaxf; largest = part[0]; "
       "__syncthreads(); then the same with the sum of expf(x - largest) and +, and at last y = "
       "expf(x - largest) / part[0]."},
      {"cuda/softmax.cu", "struct Softmax {",
       "A thread keeps its part of the row in registers, so x is read once. The lanes of a warp "
       "join by shuffles, without memory or barriers, and only warps use shared memory. Short "
       "rows get a warp each."},
      {task},
      ".cu"};
}

}  // namespace ink
