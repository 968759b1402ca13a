// Products without packing. Units pack the right operand first, which pays only if its elements are
// used often.
#pragma once

#include "autograd/memory/array.h"

namespace ink {

/// c = a b, c = a b + bias in every row, or c += a b, on all threads: for results of few rows, if
/// the operands lie as the loops need them, and tiny ones. All of f32 or of f64. Returns whether it
/// has computed anything: it leaves other products to a unit.
bool unpacked_product(Array& c, const Array& a, const Array& b, bool accumulate,
                      const Array& bias = {});

namespace cpu {
/// c = start + a b for a (..., m, k), b (..., k, n) and c (..., m, n), where m or n is 1 (or k is
/// 0), on all threads, as fast as the matrix is read (gemv.cpp). Floating dtypes, f64 only alone;
/// sums are in f32, or f64 for f64. start has c's shape and any dtype, may be c itself, or is
/// undefined: zeros.
void vector_products(Array& c, const Array& a, const Array& b, const Array& start);
}  // namespace cpu

}  // namespace ink
