// Exercise 29: softmax of rows, by threads that work together
//
// x has rows of n numbers, one after another in memory. For each row,
//
//   y[i] = exp(x[i] - m) / sum over j of exp(x[j] - m),   m = the largest x[j] of the row
//
// Subtracting m changes nothing but keeps exp from overflowing. Each row gets a block of 64
// threads: its number is blockIdx.x, so its row begins at x[blockIdx.x * n]. Thread t = threadIdx.x
// takes the columns t, t + 64, t + 128, ... below n, so that the threads of a warp read neighbours.
//
// For the largest, each thread finds that of its own columns. To join them, the threads of a block
// share some memory, which is declared in the kernel:
//
//   __shared__ shared<float, 64> part;
//
// CUDA itself has `__shared__ float part[64];` there, in which the check would see nothing. All
// else that the kernel declares, variables and arrays, each thread has for itself; no other sees
// it. Every thread writes part[t]. But threads run in any order, so one may read part[63] before it
// is written. __syncthreads() is a barrier: no thread goes on before all of its block have come
// there. So all must come: it may not stand in an `if` that only some threads enter. Join in
// halves:
//
//   for (int half = 32; half > 0; half /= 2)
//     threads t < half:  part[t] = the larger of part[t] and part[t + half]
//     all threads:       __syncthreads()
//
// Then part[0] is the largest of all. Do the same for the sum. Before part is used again, all must
// have read part[0].
//
// Shared memory has 32 banks: part[i] lies in bank i % 32. Each gives one element at a time, so 32
// neighbours come in one pass, and 32 elements of one bank in 32: a bank conflict. Useful: expf,
// fmaxf, INFINITY. The check sees all accesses, and names races.
#include "train/lessons/exercises/cuda.h"

using namespace ink;

__global__ void gpu_softmax(global<float> y, global<const float> x, int n) {
  // >>> todo("gpu_softmax");
  __shared__ shared<float, 64> part;
  const int t = threadIdx.x, begin = blockIdx.x * n;
  float largest = -INFINITY, sum = 0;
  for (int i = t; i < n; i += 64) largest = fmaxf(largest, x[begin + i]);
  part[t] = largest;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (t < half) part[t] = fmaxf(part[t], part[t + half]);
    __syncthreads();
  }
  largest = part[0];
  __syncthreads();
  for (int i = t; i < n; i += 64) sum += expf(x[begin + i] - largest);
  part[t] = sum;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  for (int i = t; i < n; i += 64) y[begin + i] = expf(x[begin + i] - largest) / part[0];
  // <<<
}

INK_EXERCISE(gpu_softmax_exercise(cuda_kernel(gpu_softmax)))
