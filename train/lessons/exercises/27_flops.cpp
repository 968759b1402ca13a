// Exercise 27: FLOPs and bytes of a step, predicted
//
// How long will a step take, before anything runs? Nearly all of its arithmetic is in matrix
// products. One of (m, k) by (k, n) takes 2 m k n FLOPs: m n sums of k products.
//
// Write step_flops: all products of a step of a GPT, forward and backward. Its sizes are layers, C,
// V (the vocabulary), B and T; heads do not matter.
//   * A block's linear layers, on all B T rows: C -> 3 C, C -> C, C -> 4 C, 4 C -> C. The head is
//     one more, C -> V. Embeddings are no products.
//   * Backward of a linear layer has two products of the same size: dx = dy W, dW = dy^T x.
//   * Attention has two products forward, q k^T and P v: 2 C FLOPs in each for every pair of a
//     query and a key. A query sees itself and what is before it: B T (T + 1) / 2 pairs. Backward
//     has five such products, because P is computed again and not kept.
//
// Write linear_bytes: the least that a linear layer `in` -> `out` on `rows` rows must read and
// write in f32 (4 bytes a number), forward and backward: each of its three products reads two
// matrices and writes one. Then FLOPs / bytes says what the layer waits for: a CPU or GPU can do 10
// to 300 FLOPs while it reads a byte. After the check a layer is measured on this machine.
//
//   struct GptSizes { double layers, C, V, B, T; };
//
// Lesson 8 measures where time and memory go.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

double step_flops(const GptSizes& s) {
  // >>> todo("step_flops");
  const double rows = s.B * s.T, pairs = s.B * s.T * (s.T + 1) / 2;
  const double block = 2 * rows * s.C * (3 * s.C + s.C + 4 * s.C + 4 * s.C);
  const double head = 2 * rows * s.C * s.V;
  return 3 * (s.layers * block + head) + s.layers * (2 + 5) * 2 * s.C * pairs;
  // <<<
}

double linear_bytes(double rows, double in, double out) {
  // >>> todo("linear_bytes");
  return 3 * 4 * (rows * in + in * out + rows * out);
  // <<<
}

INK_EXERCISE(flops_exercise(step_flops, linear_bytes))
