// Recording: nodes, what they keep, and their release. The walk is in backward.cpp.
#include "autograd/graph.h"

#include <algorithm>

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

Saved::Saved(const Tensor& tensor, int output_index, const char* what)
    : tensor_(tensor), output_index_(output_index), what_(what) {
  if (tensor_.defined()) version_ = tensor_.version();
  if (output_index >= 0) {
    tensor_.set_slot(nullptr);
  } else if (const auto& slot = tensor_.slot(); slot && slot->node && slot->node->remake) {
    slot_ = slot;
    tensor_ = {};
  }
}

// It takes the place of the first one, and so its version.
Tensor Saved::remade() const {
  INK_CHECK(slot_->node->remake, "backward: the graph through ", slot_->node->name,
            ", whose output is computed again, was freed by an earlier walk; pass retain_graph to "
            "the first one, or run the forward again");
  Tensor x = slot_->node->remake();
  x.storage()->version = slot_->version;
  x.set_slot(slot_);
  return x;
}

Tensor Saved::operator*() const {
  if (slot_) return remade();
  if (!tensor_.defined()) return tensor_;
  INK_CHECK(tensor_.version() == version_, Node::running ? Node::running->name : "backward", ": ",
            what_, ", ", tensor_.shape(), " ", tensor_.dtype(),
            ", was saved for backward at version ", version_,
            " and has been written in place since (now version ", tensor_.version(),
            "); write out of place (x = x + y) or clone() first");
  if (output_index_ < 0 || Node::running == nullptr) return tensor_;
  Tensor output = tensor_;
  output.set_slot(Node::running->outputs[static_cast<size_t>(output_index_)].lock());
  return output;
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
                           std::vector<Tensor> outputs, Vjp vjp, bool fused, Remake remake) {
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
    if (context().recompute) node->remake = std::move(remake);
  }
  for (Observer* observer : context().observers) observer->op(name, inputs, outputs, needed);
  return outputs;
}

}  // namespace ink
