// Gradient checks of layers: all parameters and all inputs in one line.
//
//   LayerNorm layer(8);
//   GradcheckReport report = gradcheck_module(layer, randn({2, 3, 8}));
//   if (!report.ok) std::cout << report << "\n";
//
// A failure names the op at fault, and says which parameters and inputs pass and which do not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/inspect/gradcheck.h"
#include "nn/module.h"

namespace ink {

namespace detail {
/// While it lives, a module computes in f64. After that the module is as it was before.
class InF64 {
 public:
  [[nodiscard]] explicit InF64(Module& module);
  ~InF64();
  InF64(const InF64&) = delete;
  InF64& operator=(const InF64&) = delete;

 private:
  struct Kept {
    Tensor x;
    Array array;
    Tensor grad;
  };
  std::vector<Kept> kept_;
};
// Tells the walk over a module's fields its size, so that members without INK_FIELDS are found.
template <class M>
struct Sized : Module {
  M& module;
  explicit Sized(M& m) : module(m) {}
  std::vector<Field> fields() override {
    std::vector<Field> list{module};
    list[0].name = "module";
    return list;
  }
};
}  // namespace detail

/// Checks the gradient of module(inputs...) with respect to each of its parameters and each
/// floating input, in f64. Inputs are tensors; ids stay as they are. The module may return several
/// tensors, in a pair, a tuple, a list or a struct. It is left unchanged: dtypes, values, buffers
/// and gradients.
template <class M, class... Tensors>
GradcheckReport gradcheck_module(M& module, Tensors... inputs) {
  detail::Sized<M>(module).parameters();  // throws if INK_FIELDS lacks one
  const detail::InF64 in_f64(module);
  std::vector<Tensor> checked;
  GradcheckOptions options;
  for (const auto& [name, parameter] : module.named_parameters()) {
    checked.push_back(parameter);
    options.names.push_back(name);
  }
  int64_t count = 0;
  const auto prepare = [&](Tensor& x) {
    const int64_t number = count++;
    if (!x.is_floating()) return;
    x = x.detach().to(f64).clone().requires_grad_();
    checked.push_back(x);
    options.names.push_back("input " + std::to_string(number));
  };
  (prepare(inputs), ...);
  const auto outputs = [&](const std::vector<Tensor>&) {
    std::vector<Tensor> all;
    detail::append_tensors(all, module(inputs...));
    return all;
  };
  return gradcheck(CheckedFunction(outputs), checked, options);
}

}  // namespace ink
