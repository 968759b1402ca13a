// Recording: nodes. Slots are in slot.cpp, saved tensors in saved.cpp, the walk in backward.cpp.
#include "autograd/engine/graph.h"

#include <algorithm>
#include <utility>

#include "autograd/engine/observer.h"

namespace ink {

static bool any_requires_grad(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](auto& x) { return x.requires_grad(); });
}

std::atomic<uint64_t> Node::made{1};
std::atomic<int64_t> Node::live{0};
thread_local Node* Node::running = nullptr;

Node::Node(const char* op) : name(op), order(made.fetch_add(1, std::memory_order_relaxed)) {
  live.fetch_add(1, std::memory_order_relaxed);
}
Node::~Node() { live.fetch_sub(1, std::memory_order_relaxed); }

bool detail::wants_record(const std::vector<Tensor>& inputs) {
  return !context().observers.empty() || (grad_enabled() && any_requires_grad(inputs));
}

std::shared_ptr<Node> detail::make_node(const char* name,
                                        std::vector<std::shared_ptr<GradSlot>> inputs,
                                        std::vector<Tensor>& outputs, Vjp vjp) {
  auto node = std::make_shared<Node>(name);
  node->inputs = std::move(inputs);
  node->vjp = std::move(vjp);
  node->outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& y = outputs[i];
    if (y.slot()) y = y.is_view() ? y.alias(y.layout()) : y.detach();
    if (y.array(name).is_floating()) y.set_slot(node->output_slot(i, y));
  }
  return node;
}

std::shared_ptr<GradSlot> Node::output_slot(size_t i, const Array& value) {
  auto slot = outputs[i].lock();
  if (slot) return slot;
  slot = std::make_shared<GradSlot>(value);
  slot->node = shared_from_this();
  slot->output_index = static_cast<int>(i);
  outputs[i] = slot;
  return slot;
}

std::vector<Tensor> record(const char* name, const std::vector<Tensor>& inputs,
                           std::vector<Tensor> outputs, Vjp vjp, Recomputation recompute,
                           bool keeps_nothing) {
  const bool needed = grad_enabled() && any_requires_grad(inputs);
  if (needed) {
    std::vector<std::shared_ptr<GradSlot>> slots;
    for (const Tensor& x : inputs) {
      slots.push_back(x.requires_grad() ? x.slot() : nullptr);
      for (Tensor& y : outputs)
        if (y.is_same(x)) y = y.detach();
    }
    const auto node = detail::make_node(name, std::move(slots), outputs, std::move(vjp));
    if (context().recompute && recompute) {
      node->recompute = std::move(recompute);
      node->recomputed = outputs[0].version();
    }
    node->keeps_nothing = keeps_nothing && !node->recompute;
  }
  for (Observer* observer : context().observers) observer->op(name, inputs, outputs, needed);
  return outputs;
}

}  // namespace ink
