// The walk: backward and grad. Recording is in graph.cpp.
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"

namespace ink {
namespace {

using Slot = std::shared_ptr<GradSlot>;
// Where a slot's gradient goes when it is complete; null when nobody wants it.
using Destination = std::function<Tensor*(const Slot&)>;

// A node that waits, with the gradients of its outputs so far.
struct Pending {
  std::shared_ptr<Node> node;
  Grads dys;
  std::vector<Slot> slots;  // of the outputs: their handles may be gone
};

class Walk {
 public:
  Walk(const Destination& destination, bool retain_graph, bool create_graph)
      : destination_(destination), retain_graph_(retain_graph), create_graph_(create_graph) {}

  // Visits the newest node that waits, until none does. A node is newer than those that computed
  // its inputs, so that when its turn comes the gradients of its outputs are complete.
  void run() {
    while (!pending_.empty()) {
      const auto newest = pending_.begin();
      Pending pending = std::move(newest->second);
      pending_.erase(newest);
      visit(pending);
    }
    finish_hooked_leaves();
  }

  // From the gradients of a node's outputs to those of its inputs.
  void visit(Pending& pending) {
    Node& node = *pending.node;
    check_usable(node);
    finish_outputs(pending);
    const Restore<Node*> running(Node::running, &node);
    const FlagGuard grad_mode(&Context::grad_enabled, create_graph_);
    for (Observer* observer : context().observers) observer->before_vjp(node);
    NodeContext asked(*this, node);
    Grads dxs = node.vjp(pending.dys, asked);
    INK_CHECK(dxs.size() == node.inputs.size(), node.name, ": its vjp returned ", dxs.size(),
              " gradients for ", node.inputs.size(), " inputs");
    for (Observer* observer : context().observers) observer->after_vjp(node, dxs);
    pending.dys.clear();
    const std::vector<Slot> inputs = retain_graph_ ? node.inputs : free(node);
    for (size_t i = 0; i < dxs.size(); ++i) {
      Tensor dx = std::move(dxs[i]);
      if (inputs[i] && dx.defined() && !asked.has_added(i))
        deliver(inputs[i], std::move(dx), node.name);
    }
  }

  // Where a walk starts, or goes on: at `output`, with its gradient; ones if undefined.
  void start(const Tensor& output, Tensor gradient) {
    INK_CHECK(output.defined() && output.requires_grad(),
              "backward: the tensor does not require grad and was not computed from one that does");
    if (!gradient.defined()) {
      INK_CHECK(output.numel() == 1, "backward: expected a tensor with one element, got ",
                output.shape(),
                "; pass the gradient to start from, or reduce it first (sum, mean)");
      gradient = detail::first_gradient(output);
    }
    deliver(output.slot(), gradient, "backward");
  }

 private:
  // What a vjp may ask of the walk.
  struct NodeContext : VjpContext {
    NodeContext(Walk& walk, const Node& node) : walk_(walk), node_(node) {}
    bool needs(size_t i) const override {
      const Slot& slot = node_.inputs[i];
      return slot && (slot->node || walk_.destination_(slot) != nullptr);
    }
    Tensor sum_so_far(size_t i) override {
      Tensor* sum = walk_.create_graph_ || !needs(i) ? nullptr : walk_.sum_of(node_.inputs[i]);
      if (sum == nullptr || !sum->defined() || !sum->alone()) return {};
      added_[i] = true;
      return *sum;
    }
    // y is newer than every node that waits, so that the walk takes it and its ancestors next.
    void continue_from(const Tensor& y, const Tensor& dy) override { walk_.start(y, dy); }
    bool has_added(size_t i) const { return added_[i]; }

   private:
    Walk& walk_;
    const Node& node_;
    std::vector<bool> added_ = std::vector<bool>(node_.inputs.size());
  };

  void check_usable(const Node& node) const {
    INK_CHECK(!node.freed, "backward: the graph through ", node.name,
              " was freed by an earlier walk; pass retain_graph to the first one, or run the "
              "forward again");
  }

  // Adds g to the gradient of a slot, whose shape it must have.
  void deliver(const Slot& slot, Tensor g, const char* from) {
    INK_CHECK(g.shape() == slot->shape, from, ": expected a gradient of shape ", slot->shape,
              ", got ", g.shape());
    Tensor* sum = sum_of(slot);
    if (sum == nullptr) return;
    if (!slot->node && slot->hooks.empty()) {
      store(*sum, std::move(g));
    } else {
      detail::add_gradient(*sum, g, create_graph_);
    }
  }

  // The sum that a slot's gradient is collected in; null when nobody wants it.
  Tensor* sum_of(const Slot& slot) {
    if (!slot->node) return slot->hooks.empty() ? destination_(slot) : &hooked_leaves_[slot];
    Pending& pending = pending_[slot->node->order];
    const size_t outputs = slot->node->outputs.size(), i = static_cast<size_t>(slot->output_index);
    if (!pending.node) pending = {slot->node, Grads(outputs), {outputs, nullptr}};
    pending.slots[i] = slot;
    return &pending.dys[i];
  }

  // A leaf takes over a gradient that nobody else owns and copies any other: its grad shares no
  // memory with another tensor.
  void store(Tensor& to, Tensor g) {
    if (to.defined()) {
      detail::add_gradient(to, g, create_graph_);
    } else {
      to = !g.alone() ? g.clone() : g.is_view() ? g.detach() : std::move(g);
    }
  }

  // The gradients of a node's outputs are complete: hooks see them, and who asked for them.
  void finish_outputs(Pending& pending) {
    for (size_t i = 0; i < pending.dys.size(); ++i) {
      const Slot& slot = pending.slots[i];
      Tensor& dy = pending.dys[i];
      if (!slot || !dy.defined()) continue;
      for (const auto& hook : slot->hooks) apply(hook, dy);
      if (Tensor* to = destination_(slot)) store(*to, dy);
    }
  }

  void finish_hooked_leaves() {
    for (auto& [slot, sum] : hooked_leaves_) {
      for (const auto& hook : slot->hooks) apply(hook, sum);
      if (Tensor* to = destination_(slot)) store(*to, std::move(sum));
    }
  }

  static void apply(const std::function<Tensor(const Tensor&)>& hook, Tensor& g) {
    if (Tensor replaced = hook(g); replaced.defined()) {
      INK_CHECK(replaced.shape() == g.shape(), "hook: expected a gradient of shape ", g.shape(),
                ", got ", replaced.shape());
      g = replaced;
    }
  }

  // Frees what the node keeps, before its gradients are delivered: one that it kept is then its
  // leaf's alone. Returns its inputs.
  static std::vector<Slot> free(Node& node) {
    node.freed = true;
    node.vjp = nullptr;
    node.recompute = nullptr;
    return std::exchange(node.inputs, {});
  }

  const Destination& destination_;
  const bool retain_graph_, create_graph_;
  std::map<uint64_t, Pending, std::greater<>> pending_;  // by the nodes' order, newest first
  std::map<Slot, Tensor> hooked_leaves_;
};

void walk(const Destination& destination, const std::vector<Tensor>& outputs, const Grads& grads,
          bool retain_graph, bool create_graph) {
  INK_CHECK(grads.empty() || grads.size() == outputs.size(), "backward: got ", grads.size(),
            " gradients for ", outputs.size(), " outputs");
  const FlagGuard grad_mode(&Context::grad_enabled, create_graph);
  Walk steps(destination, retain_graph, create_graph);
  for (size_t i = 0; i < outputs.size(); ++i)
    steps.start(outputs[i], grads.empty() ? Tensor() : grads[i]);
  steps.run();
}

}  // namespace

void backward(const std::vector<Tensor>& outputs, const Grads& grads, bool retain_graph,
              bool create_graph) {
  const Destination leaves = [](const Slot& slot) {
    return !slot->node || slot->retain_grad ? &slot->grad : nullptr;
  };
  walk(leaves, outputs, grads, retain_graph || create_graph, create_graph);
}

void backward(const Tensor& loss, GradStore& store) {
  const auto leaves = [&](const auto& slot) { return slot->node ? nullptr : store.cell(slot); };
  walk(leaves, {loss}, {}, false, false);
}

Grads grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
           const Grads& grad_outputs, bool retain_graph, bool create_graph) {
  std::unordered_map<GradSlot*, Tensor> wanted;
  for (const Tensor& input : inputs) {
    INK_CHECK(input.defined() && input.requires_grad(), "grad: an input of the derivative, ",
              input.shape(), ", does not require grad");
    wanted[input.slot().get()];
  }
  const auto found_in = [&](const Slot& slot) {
    const auto found = wanted.find(slot.get());
    return found == wanted.end() ? nullptr : &found->second;
  };
  walk(found_in, outputs, grad_outputs, retain_graph || create_graph, create_graph);
  Grads result;
  for (const Tensor& input : inputs) result.push_back(wanted[input.slot().get()]);
  return result;
}

// The definition starts from nodes of its own, so that its gradients end there.
Grads differentiate(const std::function<Tensor(const std::vector<Tensor>&)>& definition,
                    const std::vector<Tensor>& inputs, const Tensor& dy) {
  const Composed composed;
  std::vector<Tensor> starts, wanted;
  for (const Tensor& x : inputs) {
    const bool needed = x.defined() && x.requires_grad();
    starts.push_back(needed ? x.expand(x.shape()) : x);
    if (needed) wanted.push_back(starts.back());
  }
  Grads result(inputs.size());
  const Tensor y = definition(starts).to(dy.dtype());
  if (!y.requires_grad()) return result;
  Grads found = grad({y}, wanted, {dy}, true, true);
  for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
    if (!starts[i].is_same(inputs[i])) result[i] = found[k++];
  }
  return result;
}

}  // namespace ink
