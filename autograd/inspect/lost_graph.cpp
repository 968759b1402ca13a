#include "autograd/inspect/lost_graph.h"

#include "autograd/basic_ops.h"

namespace ink {

static std::string with_shape(const std::string& name, const Tensor& x) {
  return detail::joined({name, " ", x.shape(), Node::running ? " in the vjp of " : "",
                         Node::running ? Node::running->name : ""});
}

static bool is_zero(const Tensor& x) {
  const ContextGuard guard;
  context().observers.clear();
  context().grad_enabled = false;
  return !any(x != 0).item<bool>();
}

LostGraph::LostGraph(const std::vector<Tensor>& leaves) {
  for (const Tensor& x : leaves) note(x, "");
}

void LostGraph::note(const Tensor& x, const std::string& left_at) {
  seen_[x.storage().get()] = {x.storage(), left_at};
}

void LostGraph::op(const char* name, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs, bool recorded) {
  std::string left_at;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !x.is_floating() || x.slot()) continue;
    const auto found = seen_.find(x.storage().get());
    if (found == seen_.end()) continue;
    const std::string& before = found->second.left_at;
    left_at = !before.empty() ? before
              : recorded      ? with_shape(name, outputs[0]) + ", which takes a detached tensor"
                              : with_shape(name, outputs[0]) +
                               ", which has no gradient, or ran on a detached tensor";
  }
  if (!recorded && left_at.empty()) {
    for (const Tensor& x : inputs)
      if (x.defined() && x.requires_grad())
        left_at = with_shape(name, outputs[0]) + ", which has no gradient, or ran under NoGrad";
  }
  if (recorded) {
    if (constant_.empty()) constant_ = left_at;
    for (const Tensor& y : outputs) note(y, "");
  } else if (!left_at.empty()) {
    last_ = left_at;
    for (const Tensor& y : outputs) note(y, left_at);
  }
}

void LostGraph::after_vjp(const Node& node, const Grads& input_grads) {
  if (!vjp_.empty() || !grad_enabled()) return;  // the gradients are not to be differentiated
  for (size_t i = 0; i < input_grads.size(); ++i) {
    const Tensor& dx = input_grads[i];
    if (!dx.defined() || !node.inputs[i] || dx.requires_grad() || is_zero(dx)) continue;
    vjp_ = detail::joined(
        {"the vjp of ", node.name, ", whose gradient for input ", i, " ", dx.shape(),
         " was not computed by ops that record: if (grad_enabled()), return it in public ops or "
         "differentiate(definition, inputs, dy)"});
    return;
  }
}

}  // namespace ink
