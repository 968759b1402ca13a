// Combines the lanes of a vector.
#pragma once

#include <cstdint>

namespace ink {

/// Joins lanes[0 ... n - 1] by halves, and overwrites them. n: a power of 2.
template <int64_t n, class V, class Join>
[[gnu::always_inline]] inline V join_lanes(V* lanes, const Join& join) {
  if constexpr (n > 1) {
    constexpr int64_t half = n / 2;
#pragma omp simd
    for (int64_t c = 0; c < half; ++c) lanes[c] = join(lanes[c], lanes[c + half]);
    return join_lanes<half>(lanes, join);
  }
  return lanes[0];
}

}  // namespace ink
