// Products of few rows. Units pack the right operand first, which pays only if many rows use it.
#pragma once

#include "autograd/memory/array.h"

namespace ink {

/// c = a b, c = a b + bias in every row, or c += a b, for results of at most 32 rows, all of f32 or
/// all of f64, whose rows and those of b are contiguous and whole vectors. On all threads. Returns
/// whether it has computed anything: it leaves other products to a unit.
bool few_rows_product(Array& c, const Array& a, const Array& b, bool accumulate, const Array& bias);

}  // namespace ink
