// Exercise 22: strides of a broadcast
//
// A tensor is a memory and a layout: sizes, strides and an offset. The element at (i, j, k) is
//
//   memory[offset + i strides[0] + j strides[1] + k strides[2]]
//
// Broadcasting copies nothing. A tensor of sizes (3, 1) is seen as (2, 3, 4) by other strides for
// the same memory: where an element is repeated, its index must not move, so the stride is 0.
//
// Write broadcast_strides: the strides with which a tensor of `sizes` and `strides` is seen as one
// of the sizes `to`. Sizes are aligned at the right end. A dimension that `sizes` lacks, or in
// which it has 1 and `to` has not, gets the stride 0. All other strides stay; they need not be
// those of a contiguous tensor. It is certain that `sizes` can be broadcast to `to`.
//
// Write addresses: where in the memory all elements of a layout are, the last dimension fastest:
// (0, 0), (0, 1), (0, 2), (1, 0), ... It is what every op over strided tensors must know. Without
// dimensions there is one element, at the offset; if a size is 0, there is none.
//
// Ints is std::vector<int64_t>. Lesson 1 explains strides.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Ints broadcast_strides(const Ints& sizes, const Ints& strides, const Ints& to) {
  // >>> todo("broadcast_strides");
  Ints result(to.size(), 0);
  const size_t missing = to.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == to[missing + d]) result[missing + d] = strides[d];
  return result;
  // <<<
}

Ints addresses(const Ints& sizes, const Ints& strides, int64_t offset) {
  // >>> todo("addresses");
  Ints result = {offset};
  for (size_t d = 0; d < sizes.size(); ++d) {
    Ints longer;
    for (const int64_t begin : result)
      for (int64_t i = 0; i < sizes[d]; ++i) longer.push_back(begin + i * strides[d]);
    result = longer;
  }
  return result;
  // <<<
}

INK_EXERCISE(strides_exercise(broadcast_strides, addresses))
