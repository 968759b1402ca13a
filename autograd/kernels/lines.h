// Kernels: ops that work along one dimension, line by line.
#pragma once

#include "autograd/kernels/kernel.h"

namespace ink {

// clang-format off

// ---- ops/cumsum.cpp, sort.cpp: along `dim`
// Running sums or products.
KERNEL_STRIDED(scan, Array& y, const Array& x, int64_t dim, bool product)
// values and indices may be shorter than x along `dim`: they get the first ones in order.
KERNEL_STRIDED(sort, Array& values, Array& indices, const Array& x, int64_t dim, bool descending)

// ---- ops/index.cpp: ids i64, checked to lie in x's (y's) dimension `dim`
// y and ids have one shape.
KERNEL_STRIDED(gather, Array& y, const Array& x, const Array& ids, int64_t dim, const char* op)
// y's elements at the ids get the source, added or in their place. source and ids have one shape.
// The elements of one id come in the order of the ids, so the last one stays where none is added.
KERNEL_STRIDED(scatter, Array& y, const Array& source, const Array& ids, int64_t dim, bool add,
               const char* op)

// ---- ops/tril.cpp
// The lower or upper triangle of the last two dimensions; zeros elsewhere.
KERNEL(triangle, Array& y, const Array& x, int64_t diagonal, bool lower)

// clang-format on

}  // namespace ink
