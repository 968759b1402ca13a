// Elementwise kernels of the formulas in pointwise.h.
#pragma once

#include "autograd/loops/map.h"
#include "autograd/loops/pointwise.h"

namespace ink {

/// y = Function<F, T>(inputs...), with the formula F, or F::Vector in its place where that fits.
template <template <class, class> class Function, class F, class T, class... Inputs>
void map_formula(Array& y, const Inputs&... inputs) {
  using V = typename formula::InLoops<F, T>::type;
  if constexpr (requires { V::kPartial; }) {
    map_within<Function<V, T>, Function<F, T>>(y, inputs...);
  } else {
    map(y, Function<V, T>(), inputs...);
  }
}

}  // namespace ink
