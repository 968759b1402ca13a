// Exercise 28: add, your first kernel for a GPU
//
// A GPU runs one function, the kernel, in thousands of threads at once. Each thread finds out which
// number it has, and does the part of the work that belongs to this number. Write the kernel that
// adds two vectors of n numbers:
//
//   y[i] = a[i] + b[i]   for 0 <= i < n
//
// Threads come in blocks. Whoever starts a kernel says how many blocks there are, and how many
// threads each has. Here a block has 256 threads, and there are just enough blocks that every i
// gets a thread of its own: (n + 255) / 256. CUDA tells each thread
//
//   threadIdx.x   its number in its block, 0 .. 255
//   blockIdx.x    the number of its block, 0 .. blocks - 1
//   blockDim.x    how many threads a block has, 256
//
// Let every thread do one i: give the threads of block 0 the first 256 numbers, those of block 1
// the next, and so on. With n = 300 there are 512 threads: the last ones have nothing to do, and
// must touch nothing.
//
// 32 threads with neighbouring numbers, a warp, run in step. Memory gives 32 bytes at once, a
// sector. Where a warp reads 32 neighbouring floats, 4 sectors come; where its floats lie far
// apart, 32 come, and most of each is thrown away. The check counts them, and sees all accesses.
//
// __global__ says that a function is a kernel. global<float> is float* for nvcc, which compiles
// this file for a card. Here an emulator runs it: use y[i], a[i] and b[i] as with arrays.
#include "train/lessons/exercises/cuda.h"

using namespace ink;

__global__ void gpu_add(global<float> y, global<const float> a, global<const float> b, int n) {
  // >>> todo("gpu_add");
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] + b[i];
  // <<<
}

INK_EXERCISE(gpu_add_exercise(cuda_kernel(gpu_add)))
