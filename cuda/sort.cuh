// Sorting of ids, for kernels that must add elements of one id in a fixed order.
#pragma once

#include <limits>

#include "autograd/memory/array.h"

namespace ink::cuda {

/// Sorts ids (i64, any shape, each in [0, limit)); positions gets the place in row-major order
/// where each id stood. Equal ids stay in the order of their positions. Both outputs are i64 with
/// the ids' number of elements. A smaller limit takes fewer steps.
void sort_ids(Array& sorted_ids, Array& positions, const Array& ids,
              int64_t limit = std::numeric_limits<int64_t>::max());

/// The same along a dimension, line by line, for ids of any layout; all three have one shape.
void sort_ids_along(Array& sorted_ids, Array& positions, const Array& ids, int64_t dim,
                    int64_t limit);

}  // namespace ink::cuda
