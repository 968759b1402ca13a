// Products with a vector: as fast as the matrix is read.
#pragma once

#include "autograd/memory/array.h"

namespace ink::cpu {

/// c = start + a b for a (..., m, k), b (..., k, n) and c (..., m, n), where m or n is 1 (or k is
/// 0), on all threads. Floating dtypes, f64 only alone; sums are in f32, or f64 for f64. start has
/// c's shape and any dtype, may be c itself, or is undefined: zeros.
void vector_products(Array& c, const Array& a, const Array& b, const Array& start);

}  // namespace ink::cpu
