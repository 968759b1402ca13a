#include "nn/gradcheck_module.h"

namespace ink {

detail::InF64::InF64(Module& module) {
  const NamedTensors parameters = module.named_parameters(), buffers = module.named_buffers();
  for (const NamedTensors* list : {&parameters, &buffers})
    for (const auto& [name, x] : *list) {
      kept_.push_back({x, x.array(), x.grad()});
      // The module gets copies to write to, because to(f64) keeps tensors that are f64 already.
      Tensor work = x;
      work.impl().array = x.detach().clone().array();
    }
  module.to(f64);
}

detail::InF64::~InF64() {
  for (auto& [x, array, grad] : kept_) {
    x.impl().array = array;
    if (!x.slot()) continue;
    x.slot()->dtype = x.dtype();
    x.set_grad(grad);
  }
}

}  // namespace ink
