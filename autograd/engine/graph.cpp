// Recording: nodes and their release. What they keep is in saved.cpp, the walk in backward.cpp.
#include "autograd/engine/graph.h"

#include <algorithm>
#include <utility>

#include "autograd/engine/observer.h"

namespace ink {
namespace {

// A node is released through here: chains are taken apart in a loop, however long.
void release(std::shared_ptr<Node> node) {
  thread_local std::vector<std::shared_ptr<Node>>* queue = nullptr;
  if (queue != nullptr) {
    queue->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<Node>> mine;
  queue = &mine;
  mine.push_back(std::move(node));
  while (!mine.empty()) {
    const std::shared_ptr<Node> last = std::move(mine.back());
    mine.pop_back();
  }
  queue = nullptr;
}

bool any_requires_grad(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](auto& x) { return x.requires_grad(); });
}

}  // namespace

std::atomic<int64_t> Node::live{0};
thread_local const Node* Node::running = nullptr;

Node::Node(const char* op, bool is_fused) : name(op), fused(is_fused) {
  static std::atomic<uint64_t> counter{0};
  order = counter.fetch_add(1, std::memory_order_relaxed);
  live.fetch_add(1, std::memory_order_relaxed);
}
Node::~Node() { live.fetch_sub(1, std::memory_order_relaxed); }
GradSlot::~GradSlot() {
  if (node) release(std::move(node));
}

void detail::check_fresh(const char* op, const Tensor& x, size_t index) {
  const GradSlot* slot = x.slot().get();
  INK_CHECK(slot == nullptr || slot->node == nullptr || slot->version == x.version(), op,
            ": input ", index, ", ", x.shape(), " ", x.dtype(), " from ", slot->node->name,
            ", is a stale handle: its memory was written in place ", "(version ", x.version(),
            ", recorded at version ", slot->version,
            "); use the handle that was written through, or clone() before writing");
}

bool detail::wants_record(const std::vector<Tensor>& inputs) {
  return !context().observers.empty() || (grad_enabled() && any_requires_grad(inputs));
}

std::vector<Tensor> record(const char* name, const std::vector<Tensor>& inputs,
                           std::vector<Tensor> outputs, Vjp vjp, bool fused,
                           Recomputation recompute) {
  const bool needed = grad_enabled() && (any_requires_grad(inputs) || any_requires_grad(outputs));
  if (needed) {
    auto node = std::make_shared<Node>(name, fused);
    for (size_t i = 0; i < inputs.size(); ++i) {
      detail::check_fresh(name, inputs[i], i);
      node->inputs.push_back(inputs[i].requires_grad() ? inputs[i].slot() : nullptr);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      auto slot = std::make_shared<GradSlot>();
      slot->requires_grad = outputs[i].is_floating();
      slot->node = node;
      slot->output_index = static_cast<int>(i);
      slot->version = outputs[i].version();
      slot->shape = outputs[i].shape();
      node->outputs.push_back(slot);
      if (slot->requires_grad) outputs[i].set_slot(std::move(slot));
    }
    node->vjp = std::move(vjp);
    if (context().recompute) node->recompute = std::move(recompute);
  }
  for (Observer* observer : context().observers) observer->op(name, inputs, outputs, needed);
  return outputs;
}

}  // namespace ink
