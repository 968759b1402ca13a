// Sorting, for kernels that must add what has the same id in a fixed order.
#pragma once

#include <limits>

#include "autograd/memory/array.h"

namespace ink::cuda {

/// The ids (i64, any shape, each in [0, limit)) in order, and the position in row-major order where
/// each stood; equals stay in the order of their positions. Both i64 of ids' number of elements.
/// The smaller the limit, the fewer steps it takes.
void sort_ids(Array& sorted_ids, Array& positions, const Array& ids,
              int64_t limit = std::numeric_limits<int64_t>::max());

/// The same along a dimension, line by line, of ids of any layout; all three of one shape.
void sort_ids_along(Array& sorted_ids, Array& positions, const Array& ids, int64_t dim,
                    int64_t limit);

}  // namespace ink::cuda
