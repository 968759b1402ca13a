// Gradient checks of layers: all parameters and all inputs in one line.
//
//   LayerNorm layer(8);
//   GradcheckReport report = gradcheck_module(layer, randn({2, 3, 8}));
//   if (!report.ok) std::cout << report << "\n";
#pragma once

#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "nn/module.h"

namespace ink {

/// Converts the module to f64 and checks the gradient of module(inputs...) with respect to each of
/// its parameters and each floating input. Inputs are tensors; ids stay what they are.
template <class M, class... Tensors>
GradcheckReport gradcheck_module(M& module, Tensors... inputs) {
  module.to(f64);
  std::vector<Tensor> checked = module.parameters();
  const auto prepare = [&](Tensor& x) {
    if (!x.is_floating()) return;
    x = x.detach().to(f64).clone().requires_grad_();
    checked.push_back(x);
  };
  (prepare(inputs), ...);
  return gradcheck([&](const std::vector<Tensor>&) -> Tensor { return module(inputs...); },
                   checked);
}

}  // namespace ink
