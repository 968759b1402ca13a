// The walk: backward and grad. Recording is in graph.cpp.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/engine/survey.h"

namespace ink {
namespace {

using Slot = std::shared_ptr<GradSlot>;
using Lock = std::unique_lock<std::recursive_mutex>;

// A pending node, with the gradients of its outputs so far.
struct Pending {
  std::shared_ptr<Node> node;
  Grads dys;
  std::vector<Slot> slots;  // of the outputs, whose tensors may be gone
};

struct WalkOptions {
  bool retain_graph = false, create_graph = false;
  bool runs_leaf_hooks = true;
  uint64_t oldest = 0;  // nodes up to this order lead to no gradient that is wanted
  const char* op = "backward";
};

class Walk {
 public:
  Walk(const Destination& destination, const WalkOptions& options)
      : destination_(destination),
        options_(options),
        survey_(destination, options.oldest, options.retain_graph, options.op) {}

  // A walk starts, or goes on, at `output` with its gradient; ones if undefined. look() comes
  // first, so that a graph that cannot be walked is refused while nothing has changed yet.
  void look(const Tensor& output, const Tensor& gradient) {
    check_defined(options_.op, output);
    INK_CHECK(output.requires_grad(), options_.op,
              ": the tensor does not require grad: it was computed from none that does, or under "
              "NoGrad, or it is a result of grad() without create_graph");
    INK_CHECK(gradient.defined() || output.numel() == 1, options_.op,
              ": expected a tensor with one element, got ", output.shape(),
              "; pass the gradient to start from, or reduce it first (sum, mean)");
    if (gradient.defined()) output.slot()->check_gradient(options_.op, gradient.to(output.dtype()));
    survey_.add(output.slot());
  }
  void start(const Tensor& output, const Tensor& gradient) {
    Tensor g = gradient.defined() ? gradient.to(output.dtype()) : detail::first_gradient(output);
    deliver(output.slot(), std::move(g), options_.op);
  }

  // Visits the newest pending node until none is left. A node is older than all that use its
  // outputs, so when its turn comes, the gradients of its outputs are complete.
  void run() {
    while (!pending_.empty()) visit(pending_.extract(pending_.begin()).mapped());
    while (!hooked_leaves_.empty()) finish_leaf(hooked_leaves_.begin()->first);
  }

 private:
  // From the gradients of a node's outputs to those of its inputs.
  void visit(Pending& pending) {
    Node& node = *pending.node;
    finish_outputs(pending);
    if (!survey_.leads(&node)) return;
    const Restore<Node*> running(Node::running, &node);
    for (Observer* observer : context().observers) observer->before_vjp(node);
    NodeContext asked(*this, node);
    Grads dxs;
    try {
      dxs = node.vjp(pending.dys, asked);
    } catch (const Error& error) {
      detail::fail({"the backward of ", node.name, ": ", error.what()});
    }
    asked.added_to.clear();
    INK_CHECK(dxs.size() == node.inputs.size(), node.name, ": its vjp returned ", dxs.size(),
              " gradients for ", node.inputs.size(), " inputs");
    for (Observer* observer : context().observers) observer->after_vjp(node, dxs);
    pending.dys.clear();
    // The node is freed before its gradients are delivered, so that a leaf can take over a gradient
    // that the node also held.
    if (!options_.retain_graph && !node.keeps_nothing) free(node);
    for (size_t i = 0; i < dxs.size(); ++i) {
      Tensor dx = std::move(dxs[i]);
      const Slot& input = node.inputs[i];
      if (!input) continue;
      if (dx.defined() && !asked.has_added(i)) deliver(input, std::move(dx), node.name);
      if (survey_.was_last_use(input.get())) finish_leaf(input);
    }
  }

  // What a vjp may ask of the walk.
  struct NodeContext : VjpContext {
    NodeContext(Walk& walk, const Node& node) : walk_(walk), node_(node) {}
    bool needs(size_t i) const override {
      return node_.inputs[i] && walk_.survey_.leads(node_.inputs[i]);
    }
    Tensor sum_so_far(size_t i) override {
      if (walk_.options_.create_graph || !needs(i)) return {};
      Tensor* sum = walk_.sum_of(node_.inputs[i]);
      Lock lock = lock_of(node_.inputs[i], sum, std::try_to_lock);
      const bool others = lock.mutex() && !lock;  // do they add to it now?
      if (others || !sum->defined() || !sum->alone()) return {};
      added_to.push_back(std::move(lock));
      added_[i] = true;
      return *sum;
    }
    // y is newer than every pending node, so the walk visits its node and those behind it next.
    void continue_from(const Tensor& y, const Tensor& dy) override {
      walk_.look(y, dy);
      walk_.start(y, dy);
    }
    bool has_added(size_t i) const { return added_[i]; }
    std::vector<Lock> added_to;  // held until the vjp has returned

   private:
    Walk& walk_;
    const Node& node_;
    std::vector<bool> added_ = std::vector<bool>(node_.inputs.size());
  };

  // The lock under which a sum is read and written: none if it is this walk's alone.
  template <class... How>
  static Lock lock_of(const Slot& slot, const Tensor* sum, How... how) {
    return sum == &slot->grad ? Lock(slot->mutex(), how...) : Lock();
  }

  void add(const Slot& slot, Tensor& sum, Tensor g, bool kept) {
    const Lock lock = lock_of(slot, &sum);
    detail::add_gradient(sum, std::move(g), kept, options_.create_graph);
  }

  // Adds g to the gradient of a slot. A sum that is kept shares no memory with other tensors.
  void deliver(const Slot& slot, Tensor g, const char* from) {
    slot->check_gradient(from, g);
    if (Tensor* sum = sum_of(slot)) add(slot, *sum, std::move(g), !slot->node && !waits(*slot));
  }

  // Does the gradient of a leaf wait for its hooks? A hook added during a walk is for later walks.
  bool waits(const GradSlot& leaf) const {
    return options_.runs_leaf_hooks && leaf.hooks && survey_.has_hooks(&leaf);
  }

  // The sum in which a slot's gradient is collected; null if nobody wants it.
  Tensor* sum_of(const Slot& slot) {
    if (!slot->node) {
      Tensor* to = destination_(slot);
      return to && waits(*slot) ? &hooked_leaves_[slot] : to;
    }
    if (!survey_.leads(slot)) return nullptr;
    Pending& pending = pending_[slot->node->order];
    const size_t outputs = slot->node->outputs.size(), i = static_cast<size_t>(slot->output_index);
    if (!pending.node) pending = {slot->node, Grads(outputs), {outputs, nullptr}};
    pending.slots[i] = slot;
    return &pending.dys[i];
  }

  // The gradients of a node's outputs are complete: runs hooks on them, and keeps the wanted ones.
  void finish_outputs(Pending& pending) {
    for (size_t i = 0; i < pending.dys.size(); ++i) {
      const Slot& slot = pending.slots[i];
      Tensor& dy = pending.dys[i];
      if (!slot || !dy.defined()) continue;
      slot->run_hooks(dy);
      if (Tensor* to = destination_(slot)) add(slot, *to, dy, true);
    }
  }

  void finish_leaf(const Slot slot) {
    const auto waiting = hooked_leaves_.extract(slot);
    Tensor* to = waiting.empty() ? nullptr : destination_(slot);
    if (to == nullptr) return;  // nothing waits, or a hook of another leaf has switched it off
    Tensor& g = waiting.mapped();
    if (to == &slot->grad) return slot->accumulate(std::move(g), options_.create_graph);
    slot->run_hooks(g);
    add(slot, *to, std::move(g), true);
  }

  // The node's edges stay, so that later walks know where it leads.
  static void free(Node& node) {
    node.freed = true;
    node.vjp = nullptr;
    node.recompute = nullptr;
  }

  const Destination& destination_;
  const WalkOptions options_;
  Survey survey_;
  std::map<uint64_t, Pending, std::greater<>> pending_;  // by the nodes' order, newest first
  std::map<Slot, Tensor> hooked_leaves_;
};

void walk(const Destination& destination, const std::vector<Tensor>& outputs, const Grads& grads,
          WalkOptions options) {
  INK_CHECK(grads.empty() || grads.size() == outputs.size(), options.op, ": got ", grads.size(),
            " gradients for ", outputs.size(), " outputs");
  options.retain_graph |= options.create_graph;
  const FlagGuard grad_mode(&Context::grad_enabled, options.create_graph);
  const Grads given = grads.empty() ? Grads(outputs.size()) : grads;
  Walk steps(destination, options);
  for (size_t i = 0; i < outputs.size(); ++i) steps.look(outputs[i], given[i]);
  for (size_t i = 0; i < outputs.size(); ++i) steps.start(outputs[i], given[i]);
  steps.run();
}

}  // namespace

void backward(const TensorList& outputs, const TensorList& grads, bool retain_graph,
              bool create_graph) {
  walk([](const Slot& slot) { return slot->own_grad(); }, outputs, grads,
       {retain_graph, create_graph});
}

void backward(const Tensor& loss, GradStore& store) {
  const Destination cells = [&](const Slot& slot) {
    return slot->node || !slot->requires_grad ? slot->own_grad() : store.cell(slot);
  };
  walk(cells, {loss}, {}, {.runs_leaf_hooks = false});
}

Grads grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs,
           bool retain_graph, bool create_graph) {
  std::unordered_map<GradSlot*, Tensor> wanted;
  uint64_t oldest = Node::made;
  for (const Tensor& input : inputs) {
    INK_CHECK(input.defined() && input.requires_grad(), "grad: an input of the derivative, ",
              input.shape(), ", does not require grad");
    wanted[input.slot().get()];
    oldest = std::min(oldest, input.slot()->node ? input.slot()->node->order : 0);
  }
  const Destination found_in = [&](const Slot& slot) {
    const auto found = wanted.find(slot.get());
    return found == wanted.end() ? nullptr : &found->second;
  };
  walk(found_in, outputs, grad_outputs, {retain_graph, create_graph, true, oldest, "grad"});
  Grads result;
  for (const Tensor& input : inputs) result.push_back(wanted[input.slot().get()]);
  return result;
}

}  // namespace ink
