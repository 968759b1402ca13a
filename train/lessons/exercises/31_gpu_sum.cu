// Exercise 31: a sum of many numbers, by blocks and warps
//
// Sum n numbers. Blocks cannot wait for each other, so each block sums 256 of them, one for each of
// its threads, and leaves the sum of its part:
//
//   y[block] = x[256 block] + ... + x[256 block + 255]     as far as there are so many
//
// The check launches your kernel again for the blocks' sums, until one is left. The order of the
// additions is fixed, so the result has the same bits each time.
//
// Within a block, exercise 29 joined 64 numbers in shared memory, with a barrier after each
// halving. The 32 threads of a warp run together and can do without: a shuffle gives each of them a
// number that another one holds in a register. All 32 must take part in
//
//   __shfl_xor_sync(0xffffffff, value, mask)     the value of the thread whose number in the warp
//                                                is its own ^ mask
//
// So `value += __shfl_xor_sync(0xffffffff, value, 16)`, then the same with 8, 4, 2 and 1, leaves
// the sum of the warp in all its threads. (The mask 0xffffffff says that all 32 are there.)
//
// A block has 8 warps. One thread of each warp writes the warp's sum to shared memory; then comes a
// barrier; then one thread adds the 8 sums and writes y[blockIdx.x]. A thread beyond the end of x
// has the number 0, and takes part.
//
// It can be done in shared memory alone, as in exercise 29. Then let threads t < half add [t +
// half] to [t]: with [2 * half * t] the numbers of a warp lie in few of the 32 banks, which give
// one each.
#include "train/lessons/exercises/cuda.h"

using namespace ink;

__global__ void gpu_sum(global<float> y, global<const float> x, int n) {
  // >>> todo("gpu_sum");
  __shared__ shared<float, 8> of_warp;
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float value = i < n ? x[i] : 0;
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffff, value, mask);
  if (t % 32 == 0) of_warp[t / 32] = value;
  __syncthreads();
  if (t == 0) {
    float sum = 0;
    for (int warp = 0; warp < 8; ++warp) sum += of_warp[warp];
    y[blockIdx.x] = sum;
  }
  // <<<
}

INK_EXERCISE(gpu_sum_exercise(cuda_kernel(gpu_sum)))
