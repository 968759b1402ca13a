// Transposes a square of elements in vectors, for the packing of operands.
//
// Include it where the target is the processor that it is for, because code that one file compiles
// for its processor must not end up in another file's.
#pragma once

#include <utility>

#include "autograd/base/shuffle.h"

namespace ink {
namespace {

// Exchanges the elements (i, j + S) and (i + S, j) of a square, for i and j without bit S. J: 0 to
// the number of lanes.
template <int S, class Vector, int... J>
[[gnu::always_inline]] inline void exchange(Vector* rows, std::integer_sequence<int, J...>) {
  constexpr int n = sizeof...(J);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if (i & S) continue;
    const Vector a = rows[i], b = rows[i + S];
    rows[i] = INK_SHUFFLE(a, b, (J & S ? n + J - S : J)...);
    rows[i + S] = INK_SHUFFLE(a, b, (J & S ? n + J : J + S)...);
  }
}

// As many rows as a vector has lanes: by halves, quarters and so on.
template <class Vector>
[[gnu::always_inline]] inline void transpose_square(Vector* rows) {
  constexpr int n = sizeof(Vector) / sizeof(rows[0][0]);
  constexpr auto lanes = std::make_integer_sequence<int, n>{};
  if constexpr (n >= 16) exchange<8>(rows, lanes);
  if constexpr (n >= 8) exchange<4>(rows, lanes);
  if constexpr (n >= 4) exchange<2>(rows, lanes);
  exchange<1>(rows, lanes);
}

}  // namespace
}  // namespace ink
