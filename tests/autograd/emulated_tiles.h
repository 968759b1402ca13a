#pragma once

#include "autograd/gemm/units.h"

namespace ink {

/// gemm/amx.cpp with tiles that AVX-512 computes, or null if the processor cannot.
const GemmUnit* emulated_tiles_unit();

}  // namespace ink
