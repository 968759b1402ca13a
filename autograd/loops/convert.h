// Conversions of elements from one dtype to another, compiled once for all kernels (map.cpp).
#pragma once

#include <cstdint>

#include "autograd/base/dtype.h"

namespace ink::detail {

/// to[i] = from[i], for i < n.
using Convert = void (*)(void* to, const void* from, int64_t n);
Convert conversion(DType to, DType from);

}  // namespace ink::detail
