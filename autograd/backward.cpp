// The walk: backward, grad and GradStore. Recording is in graph.cpp.
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/graph.h"
#include "autograd/ops.h"

namespace ink {
namespace {

template <class T>
struct Restore {  // gives a variable its old value back
  Restore(T& variable, T value) : variable_(variable), saved_(variable) { variable = value; }
  ~Restore() { variable_ = saved_; }
  T& variable_;
  T saved_;
};

// Where the finished gradient of a slot is collected; null when nobody wants it.
using Sink = std::function<Tensor*(const std::shared_ptr<GradSlot>&)>;

// Adds g to a sum: borrowed on first arrival, summed into a private copy on the second, added in
// place after that.
void add_to(Tensor& sum, const Tensor& g, bool create_graph) {
  if (!sum.defined()) {
    sum = g;
  } else if (!create_graph && sum.sole_owner()) {
    sum.add_(g);
  } else {
    sum = add(sum, g);
  }
}

// The constant 1 that walks start from, one for each dtype and device; made anew if it was written
// to.
Tensor one(Options options) {
  constexpr uint64_t kAsMade = 1;  // version: a single write
  static std::mutex mutex;
  static auto* made = new std::map<std::tuple<DType, Device::Type, int>, Tensor>;
  const std::lock_guard lock(mutex);
  Tensor& kept = (*made)[{options.dtype, options.device.type, options.device.index}];
  if (!kept.defined() || kept.version() != kAsMade) kept = full({}, 1, options);
  return kept;
}

class Walk {
 public:
  Walk(const Sink& sink, bool retain_graph, bool create_graph)
      : sink_(sink), retain_graph_(retain_graph), create_graph_(create_graph) {}

  void seed(const Tensor& output, Tensor gradient) {
    INK_CHECK(output.defined() && output.requires_grad(),
              "backward: the tensor does not require grad and was not computed from one that does");
    detail::check_fresh("backward", output, 0);
    if (!gradient.defined()) {
      INK_CHECK(output.numel() == 1, "backward: expected a tensor with one element, got ",
                output.shape(),
                "; pass the gradient to start from, or reduce it first (sum, mean)");
      gradient = one(output.options()).alias({output.shape(), Shape::filled(output.dim(), 1), 0});
    }
    deliver(output.slot(), gradient, "backward");
  }

  void run() {
    while (!pending_.empty()) {
      Pending pending = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      visit(pending);
    }
    for (auto& [slot, sum] : hooked_leaves_) {
      for (const auto& hook : slot->hooks) apply(hook, sum);
      if (Tensor* cell = sink_(slot)) store(*cell, std::move(sum));
    }
  }

 private:
  struct Pending {
    std::shared_ptr<Node> node;
    Grads dys;
    std::vector<std::shared_ptr<GradSlot>> slots;  // of the outputs: their handles may be gone
  };
  struct Asked : VjpContext {
    Asked(Walk& walk, const Node& node) : walk_(walk), node_(node) {}
    bool needs(size_t i) const override {
      const auto& slot = node_.inputs[i];
      return slot && (slot->node || walk_.sink_(slot) != nullptr);
    }
    Tensor into(size_t i) override {
      Tensor* sum = walk_.create_graph_ || !needs(i) ? nullptr : walk_.collected(node_.inputs[i]);
      if (sum == nullptr || !sum->defined() || !sum->sole_owner()) return {};
      given_[i] = true;
      return *sum;
    }
    // y is newer than every node that waits, so that the walk takes it and its ancestors next.
    void resume(const Tensor& y, const Tensor& dy) override { walk_.seed(y, dy); }
    bool given(size_t i) const { return given_[i]; }

   private:
    Walk& walk_;
    const Node& node_;
    std::vector<bool> given_ = std::vector<bool>(node_.inputs.size());
  };

  // The sum a slot's gradient is collected in.
  Tensor* collected(const std::shared_ptr<GradSlot>& slot) {
    if (!slot->node) return slot->hooks.empty() ? sink_(slot) : &hooked_leaves_[slot];
    Pending& pending = pending_[slot->node->order];
    const size_t outputs = slot->node->outputs.size();
    if (!pending.node) pending = {slot->node, Grads(outputs), {outputs, nullptr}};
    pending.slots[static_cast<size_t>(slot->output_index)] = slot;
    return &pending.dys[static_cast<size_t>(slot->output_index)];
  }

  void deliver(const std::shared_ptr<GradSlot>& slot, Tensor g, const char* from) {
    INK_CHECK(g.shape() == slot->shape, from, ": expected a gradient of shape ", slot->shape,
              ", got ", g.shape());
    Tensor* sum = collected(slot);
    if (sum == nullptr) return;
    if (!slot->node && slot->hooks.empty()) {
      store(*sum, std::move(g));
    } else {
      add_to(*sum, g, create_graph_);
    }
  }

  // A leaf steals a gradient it solely owns and copies any other, so that its grad never shares
  // memory.
  void store(Tensor& cell, Tensor g) {
    if (cell.defined()) {
      add_to(cell, g, create_graph_);
    } else {
      cell = create_graph_ || g.sole_owner() ? std::move(g) : g.clone();
    }
  }

  static void apply(const std::function<Tensor(const Tensor&)>& hook, Tensor& g) {
    if (Tensor replaced = hook(g); replaced.defined()) {
      INK_CHECK(replaced.shape() == g.shape(), "hook: expected a gradient of shape ", g.shape(),
                ", got ", replaced.shape());
      g = replaced;
    }
  }

  void finish_outputs(Pending& pending) {
    for (size_t i = 0; i < pending.dys.size(); ++i) {
      const auto& slot = pending.slots[i];
      Tensor& dy = pending.dys[i];
      if (!slot || !dy.defined()) continue;
      for (const auto& hook : slot->hooks) apply(hook, dy);
      if (Tensor* cell = sink_(slot)) store(*cell, dy);
    }
  }

  void visit(Pending& pending) {
    Node& node = *pending.node;
    INK_CHECK(!node.freed, "backward: the graph through ", node.name,
              " was freed by an earlier walk; pass retain_graph to the first one, or run the "
              "forward again");
    INK_CHECK(!(create_graph_ && node.fused), "backward: ", node.name,
              " is a fused op, and its backward cannot be differentiated; run the forward under "
              "Composed");
    finish_outputs(pending);
    const Restore<const Node*> node_scope(Node::running, &node);
    const FlagGuard grad_mode(&Context::grad_enabled, create_graph_);
    for (Observer* observer : context().observers) observer->before_vjp(node);
    Asked asked(*this, node);
    Grads dxs = node.vjp(pending.dys, asked);
    INK_CHECK(dxs.size() == node.inputs.size(), node.name, ": its vjp returned ", dxs.size(),
              " gradients for ", node.inputs.size(), " inputs");
    for (Observer* observer : context().observers) observer->after_vjp(node, dxs);
    pending.dys.clear();
    const auto inputs = retain_graph_ ? node.inputs : free(node);
    for (size_t i = 0; i < dxs.size(); ++i) {
      Tensor dx = std::move(dxs[i]);
      if (inputs[i] && dx.defined() && !asked.given(i))
        deliver(inputs[i], std::move(dx), node.name);
    }
  }

  // Frees what the node keeps, before its gradients are delivered: one that it kept is then its
  // leaf's alone. Returns its inputs.
  static std::vector<std::shared_ptr<GradSlot>> free(Node& node) {
    node.freed = true;
    node.vjp = nullptr;
    node.remake = nullptr;
    return std::exchange(node.inputs, {});
  }

  const Sink& sink_;
  const bool retain_graph_, create_graph_;
  std::map<uint64_t, Pending, std::greater<>> pending_;  // newest first
  std::map<std::shared_ptr<GradSlot>, Tensor> hooked_leaves_;
};

void walk(const Sink& sink, const std::vector<Tensor>& outputs, const Grads& grads,
          bool retain_graph, bool create_graph) {
  INK_CHECK(grads.empty() || grads.size() == outputs.size(), "backward: got ", grads.size(),
            " gradients for ", outputs.size(), " outputs");
  const FlagGuard grad_mode(&Context::grad_enabled, create_graph);
  Walk steps(sink, retain_graph, create_graph);
  for (size_t i = 0; i < outputs.size(); ++i)
    steps.seed(outputs[i], grads.empty() ? Tensor() : grads[i]);
  steps.run();
}

}  // namespace

bool is_one(const Tensor& gradient) {
  return gradient.numel() == 1 && gradient.storage() == one(gradient.options()).storage();
}

Tensor* GradStore::cell(const std::shared_ptr<GradSlot>& slot) {
  const auto [entry, added] = index_.try_emplace(slot.get(), grads_.size());
  if (added) grads_.emplace_back(slot, Tensor());
  return &grads_[entry->second].second;
}

Tensor GradStore::get(const Tensor& leaf) const {
  const auto found = index_.find(leaf.slot().get());
  return found == index_.end() ? Tensor() : grads_[found->second].second;
}

Tensor GradStore::take(const Tensor& leaf) {
  const auto found = index_.find(leaf.slot().get());
  return found == index_.end() ? Tensor() : std::exchange(grads_[found->second].second, {});
}

void GradStore::add_to_leaves() {
  const NoGrad no_grad;
  for (auto& [slot, g] : grads_) {
    if (slot->owners == 0) detail::unowned_leaf = slot;
    if (g.defined()) add_to(slot->grad, std::exchange(g, {}), false);
  }
  grads_.clear();
  index_.clear();
}

void backward(const std::vector<Tensor>& outputs, const Grads& grads, bool retain_graph,
              bool create_graph) {
  const Sink leaves = [](const std::shared_ptr<GradSlot>& slot) {
    if (!slot->node && slot->owners == 0) detail::unowned_leaf = slot;
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
  const auto captured = [&](const std::shared_ptr<GradSlot>& slot) {
    const auto found = wanted.find(slot.get());
    return found == wanted.end() ? nullptr : &found->second;
  };
  walk(captured, outputs, grad_outputs, retain_graph || create_graph, create_graph);
  Grads result;
  for (const Tensor& input : inputs) result.push_back(wanted[input.slot().get()]);
  return result;
}

}  // namespace ink
