// Exercise 28: add, your first kernel for a GPU
//
// A GPU runs one function, the kernel, in thousands of threads at once. Each thread finds out which
// number it has, and does the part of the work that belongs to this number. Write the kernel that
// adds two vectors of n numbers:
//
//   y[i] = a[i] + b[i]   for 0 <= i < n
//
// Threads come in blocks. Whoever launches (starts) a kernel says how many blocks there are, the
// grid, and how many threads each has. Here a block has 256 threads, and there are just enough
// blocks that every i gets a thread of its own: (n + 255) / 256. In CUDA a program launches yours
// by gpu_add<<<(n + 255) / 256, 256>>>(y, a, b, n); here the check does. All threads run the same
// lines. CUDA tells each of them
//
//   threadIdx.x   its number in its block, 0 .. 255
//   blockIdx.x    the number of its block, 0 .. blocks - 1
//   blockDim.x    how many threads a block has, 256
//   gridDim.x     how many blocks there are
//
// (x, because there may be a second direction, y, as in exercise 30.) Let every thread do one i:
// give the threads of block 0 the first 256 numbers, those of block 1 the next, and so on. With
// n = 300 there are 512 threads: the last ones have nothing to do, and must touch nothing.
//
// y, a and b lie in global memory, which all threads see; a variable of the kernel is each thread's
// own. y holds NaN until it is written, so "nan" in a result is what no thread has written. Two
// threads that write one element race: threads run in any order, and nobody knows which is last.
// (There, messages name __syncthreads(), which exercise 29 explains; you do not need it here.)
//
// 32 threads with neighbouring numbers, a warp, run in step. Memory gives 32 bytes at once, a
// sector. Where a warp reads 32 neighbouring floats, 4 sectors come; where its floats lie far
// apart, 32 come, and most of each is thrown away. The check counts them, and sees all accesses.
// It compares gradients, too, da and db: they follow from y, and you write nothing for them.
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
