// Sorting of ids, for kernels that must add elements of one id in a fixed order.
#pragma once

#include "autograd/memory/array.h"

namespace ink::cuda {

/// Sorts ids (i64 of any layout, each in [0, limit)) along a dimension, line by line; positions
/// gets the place in its line where each id stood. Equal ids stay in their order. All three are i64
/// and have one shape. A smaller limit takes fewer steps.
void sort_ids(Array& sorted_ids, Array& positions, const Array& ids, int64_t dim, int64_t limit);

}  // namespace ink::cuda
