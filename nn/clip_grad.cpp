#include "nn/clip_grad.h"

#include "autograd/more_ops.h"

namespace ink {

static std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> grads;
  for (const Tensor& p : parameters)
    if (const Tensor g = p.grad(); g.defined()) grads.push_back(g);
  return grads;
}

Tensor clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type) {
  INK_CHECK(max_norm >= 0, "clip_grad_norm_: expected a norm of 0 or more, got ", max_norm);
  const NoGrad no_grad;
  std::vector<Tensor> norms;
  std::vector<Tensor> grads = gradients_of(parameters);
  if (grads.empty()) return scalar_tensor(0.0);
  for (const Tensor& g : grads)
    norms.push_back(norm(g.dtype() == bf16 ? g.to(f32) : g, norm_type)
                        .to(norms.empty() ? cpu_device : norms[0].device()));
  const Tensor total = norm(stack(norms), norm_type);
  const Tensor scale = clamp(max_norm / (total + 1e-6), {}, 1.0);
  for (Tensor& g : grads) g.mul_(scale.to(g.device()));
  return total;
}

void clip_grad_value_(const TensorList& parameters, double clip_value) {
  INK_CHECK(clip_value >= 0, "clip_grad_value_: expected a value of 0 or more, got ", clip_value);
  const NoGrad no_grad;
  for (Tensor& g : gradients_of(parameters)) g.clamp_(-clip_value, clip_value);
}

}  // namespace ink
