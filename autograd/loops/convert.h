// Conversions of elements from one dtype to another, compiled once for all kernels (map.cpp).
#pragma once

#include <cstdint>

#include "autograd/base/dtype.h"

namespace ink {

namespace detail {

/// to[i] = from[i], for i < n.
using Convert = void (*)(void* to, const void* from, int64_t n);
Convert conversion(DType to, DType from);

}  // namespace detail

/// Calls f(C{}) with the type in which a floating dtype is computed: double for f64, else float.
/// Throws "op: ..." for other dtypes.
template <class F>
auto for_computed(const char* op, DType dtype, F&& f) {
  if (dtype == f64) return f(double{});
  INK_CHECK(is_floating(dtype), op, ": expected a floating dtype, got ", dtype);
  return f(float{});
}

}  // namespace ink
