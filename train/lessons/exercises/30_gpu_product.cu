// Exercise 30: a product of matrices in tiles
//
// a is (m, k), b is (k, n), rows one after another in memory: a[i * k + j] is a's row i, column j.
// Write y = a b, which is (m, n):
//
//   y[i * n + c] = sum over j of a[i * k + j] * b[j * n + c]
//
// If every thread read its row and its column from global memory, each number of a would be read n
// times. Instead, a block of 256 threads makes a tile of y of 16 x 16 numbers, one in each thread:
//
//   r = threadIdx.x / 16, s = threadIdx.x % 16     the thread's place in the tile
//   row = blockIdx.y * 16 + r, column = blockIdx.x * 16 + s
//
// It goes along k in steps of 16. In each step the block brings a tile of a and one of b, both 16 x
// 16, to shared memory (exercise 29 explains it), where each thread brings one number of each. Then
// every thread adds 16 products of numbers that all 16 threads of its row or column use:
//
//   for first = 0, 16, 32, ... below k:
//     a_tile[16 * r + s] = a at (row, first + s)
//     b_tile[16 * r + s] = b at (first + r, column)
//     wait until all have brought theirs
//     sum += a_tile[16 * r + j] * b_tile[16 * j + s]      for j = 0 .. 15
//     wait until nobody needs these tiles any more
//
// m, k and n need not be multiples of 16. A thread whose number lies outside of a or b brings 0 and
// goes on, because all must come to each __syncthreads(). At the end it writes nothing if its place
// lies outside of y.
//
// Neighbouring threads have neighbouring s: so they read neighbours of a and b, and of b_tile. The
// gradients are products, too, da = dy b^T and db = a^T dy, which the check computes by your
// kernel.
#include "train/lessons/exercises/cuda.h"

using namespace ink;

__global__ void gpu_product(global<float> y, global<const float> a, global<const float> b, int m,
                            int k, int n) {
  // >>> todo("gpu_product");
  __shared__ shared<float, 256> a_tile;
  __shared__ shared<float, 256> b_tile;
  const int r = threadIdx.x / 16, s = threadIdx.x % 16;
  const int row = blockIdx.y * 16 + r, column = blockIdx.x * 16 + s;
  float sum = 0;
  for (int first = 0; first < k; first += 16) {
    a_tile[16 * r + s] = row < m && first + s < k ? a[row * k + first + s] : 0;
    b_tile[16 * r + s] = first + r < k && column < n ? b[(first + r) * n + column] : 0;
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += a_tile[16 * r + j] * b_tile[16 * j + s];
    __syncthreads();
  }
  if (row < m && column < n) y[row * n + column] = sum;
  // <<<
}

INK_EXERCISE(gpu_product_exercise(cuda_kernel(gpu_product)))
