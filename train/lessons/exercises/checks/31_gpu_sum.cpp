#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/kernels.h"

namespace ink {
namespace gpu_sum_check {

constexpr int64_t kThreads = 256;

int64_t blocks_of(const Tensor& x) { return (x.numel() + kThreads - 1) / kThreads; }

Tensor op(KernelRuns& kernel, const Tensors& x) {
  Tensor left = x[0].detach();
  do {
    const int64_t blocks = blocks_of(left);
    kernel.enough("x", left.numel());
    left = kernel.run({blocks, 1}, kThreads, {blocks}, {{"x", left}}, {left.numel()});
  } while (left.numel() > 1);
  return record("gpu_sum", x, left.reshape({}),
                [shape = x[0].shape()](const Tensor& dy) -> Grads { return {dy.expand(shape)}; });
}

Tensor library(const Tensors& x) { return sum(x[0]); }

// What is left if a block leaves f(its numbers), which are 256, the last ones 0; b: its number.
template <class F>
Tensor by_blocks(Tensor x, const F& f) {
  do {
    const int64_t blocks = blocks_of(x);
    const Tensor padded = zeros({blocks * kThreads});
    padded.narrow(0, 0, x.numel()).copy_(x);
    Tensors sums;
    for (int64_t b = 0; b < blocks; ++b) sums.push_back(f(padded, b));
    x = stack(sums, 0);
  } while (x.numel() > 1);
  return x.reshape({});
}
Tensor of_block(const Tensor& x, int64_t b) { return x.narrow(0, b * kThreads, kThreads); }

Tensor first_warp(const Tensors& x) {
  return by_blocks(
      x[0], [](const Tensor& all, int64_t b) { return sum(of_block(all, b).narrow(0, 0, 32)); });
}
Tensor same_block(const Tensors& x) {
  return by_blocks(x[0], [](const Tensor& all, int64_t) { return sum(of_block(all, 0)); });
}
Tensor one_thread(const Tensors& x) {
  return by_blocks(x[0],
                   [](const Tensor& all, int64_t b) { return of_block(all, b).select(0, 0); });
}
// Thread 0 of each warp lacks what came from 16 on: the shuffles began with 8.
Tensor half_a_warp(const Tensors& x) {
  return by_blocks(x[0], [](const Tensor& all, int64_t b) {
    return sum(of_block(all, b).reshape({8, 2, 16}).select(1, 0));
  });
}

// Quarters: sums are exact in f32.
Case of(const std::string& name, int64_t n) {
  return {name, {scalar(0.5), round(noise(2, {n}) * 4) / 4}};
}

}  // namespace gpu_sum_check

Exercise gpu_sum_exercise(const CudaKernel& kernel) {
  using namespace gpu_sum_check;
  Task task = kernel_task("gpu_sum", {"y", "dx"}, kernel, op, library);
  task.cases = {of("256 numbers, one block", 256), of("one number", 1),
                of("600 numbers, three blocks", 600), of("40 numbers", 40)};
  task.mistakes = {
      kernel_mistake(
          first_warp, task,
          "Only the first warp's numbers are summed: the sums of all 8 are to be added."),
      kernel_mistake(same_block, task,
                     "All blocks sum the same numbers: block b begins with x[256 b]."),
      kernel_mistake(one_thread, task,
                     "This is the block's first number alone: its threads are not joined."),
      kernel_mistake(
          half_a_warp, task,
          "Half of each warp is missing: the shuffles begin with 16, and go on by 8, 4, 2 and 1.")};
  return {"31_gpu_sum",
          "its own page, exercise 29, and cuda/README.md",
          {"A thread has one number: x[i] with i = blockIdx.x * blockDim.x + threadIdx.x, or 0 if "
           "i is not below n. No thread may leave before the shuffles.",
           "for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffff, value, "
           "mask); then the thread with threadIdx.x % 32 == 0 writes the sum of warp threadIdx.x / "
           "32.",
           "After __syncthreads() thread 0 adds the 8 sums in a loop, and writes y[blockIdx.x]."},
          {"cuda/launch.cuh", "__device__ inline T block_reduce(",
           "Each warp joins by shuffles, and then all warps join the warps' results in the same "
           "way, so that every thread has the sum. The order is fixed there, too: no atomic "
           "addition, whose order the card decides."},
          {task},
          ".cu"};
}

}  // namespace ink
