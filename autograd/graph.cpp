#include "autograd/graph.h"

#include <map>

#include "autograd/ops.h"

namespace ink {
namespace {

// The node whose vjp runs on this thread, for Saved; and where the running walk sends leaf
// gradients, for checkpoint.
struct Sink;
thread_local const Node* running_node = nullptr;
thread_local Sink* running_sink = nullptr;

template <class T>
struct Restore {  // gives a variable its old value back
  Restore(T& variable, T value) : variable_(variable), saved_(variable) { variable = value; }
  ~Restore() { variable_ = saved_; }
  T& variable_;
  T saved_;
};

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

bool requires_grad(const Tensor& x) { return x.slot() != nullptr && x.slot()->requires_grad; }

void check_fresh(const char* op, const Tensor& x, size_t index) {
  const GradSlot* slot = x.slot().get();
  INK_CHECK(slot == nullptr || slot->node == nullptr || slot->version == x.version(), op,
            ": input ", index, ", ", x.shape(), " ", x.dtype(), " from ", slot->node->name,
            ", is a stale handle: its memory was written in place ", "(version ", x.version(),
            ", recorded at version ", slot->version,
            "); use the handle that was written through, or clone() before writing");
}

}  // namespace

std::atomic<int64_t> Node::live{0};

Node::Node(const char* op, bool is_fused) : name(op), fused(is_fused) {
  static std::atomic<uint64_t> counter{0};
  order = counter.fetch_add(1, std::memory_order_relaxed);
  live.fetch_add(1, std::memory_order_relaxed);
}
Node::~Node() { live.fetch_sub(1, std::memory_order_relaxed); }
GradSlot::~GradSlot() {
  if (node) release(std::move(node));
}

// ---- recording
// ---------------------------------------------------------------------------------------------------

Saved::Saved(const Tensor& tensor, int output_index, const char* what)
    : tensor_(tensor), output_index_(output_index), what_(what) {
  if (tensor_.defined()) version_ = tensor_.version();
  if (output_index >= 0) tensor_.set_slot(nullptr);
}

Tensor Saved::operator*() const {
  if (!tensor_.defined()) return tensor_;
  INK_CHECK(tensor_.version() == version_, running_node ? running_node->name : "backward", ": ",
            what_, ", ", tensor_.shape(), " ", tensor_.dtype(),
            ", was saved for backward at version ", version_,
            " and has been written in place since (now version ", tensor_.version(),
            "); write out of place (x = x + y) or clone() first");
  if (output_index_ < 0 || running_node == nullptr) return tensor_;
  Tensor output = tensor_;
  output.set_slot(running_node->outputs[static_cast<size_t>(output_index_)].lock());
  return output;
}

bool detail::wants_record(const std::vector<Tensor>& inputs) {
  if (!context().observers.empty()) return true;
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(), requires_grad);
}

std::vector<Tensor> record(const char* name, const std::vector<Tensor>& inputs,
                           std::vector<Tensor> outputs, Vjp vjp, bool fused) {
  const bool needed = grad_enabled() && std::any_of(inputs.begin(), inputs.end(), requires_grad);
  if (needed) {
    auto node = std::make_shared<Node>(name, fused);
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_fresh(name, inputs[i], i);
      node->inputs.push_back(requires_grad(inputs[i]) ? inputs[i].slot() : nullptr);
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
  }
  for (Observer* observer : context().observers) observer->op(name, inputs, outputs, needed);
  return outputs;
}

void detail::check_in_place(const char* op, const Tensor& x, bool operands_require_grad) {
  if (!grad_enabled()) return;
  const bool tracked = requires_grad(x);
  INK_CHECK(!(tracked && x.is_leaf()), op, ": a leaf that requires grad, ", x.shape(),
            ", cannot be written in place while a graph is recorded; do it under NoGrad, or on "
            "x.detach()");
  INK_CHECK(!(x.is_view() && (tracked || operands_require_grad)), op,
            ": writing in place through a view, ", x.shape(),
            ", is not recorded; write out of place (x = x + y), or under NoGrad");
  INK_CHECK(tracked || !operands_require_grad || x.storage().use_count() == 1, op,
            ": other tensors share the memory of ", x.shape(),
            " and would miss its gradient; clone() it first, or write out of place (x = x + y)");
}

void detail::rebind(Tensor& x, const Tensor& result) {
  x.set_slot(result.slot());
  if (x.slot()) x.slot()->version = x.version();
}

// ---- walking
// -----------------------------------------------------------------------------------------------------

namespace {

// Where gradients of leaves go: find() gives the tensor to collect into, or null when nobody wants
// this one.
struct Sink {
  virtual ~Sink() = default;
  virtual Tensor* find(const std::shared_ptr<GradSlot>& slot) = 0;
  virtual Tensor* captured(GradSlot&) { return nullptr; }  // wanted although it is not a leaf
};
struct LeafSink : Sink {
  Tensor* find(const std::shared_ptr<GradSlot>& slot) override { return &slot->grad; }
};
struct CaptureSink : Sink {
  std::unordered_map<GradSlot*, Tensor> wanted;
  Tensor* captured(GradSlot& slot) override {
    const auto found = wanted.find(&slot);
    return found == wanted.end() ? nullptr : &found->second;
  }
  Tensor* find(const std::shared_ptr<GradSlot>& slot) override { return captured(*slot); }
};

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

class Walk {
 public:
  Walk(Sink& sink, bool retain_graph, bool create_graph)
      : sink_(sink), retain_graph_(retain_graph), create_graph_(create_graph) {}

  void seed(const Tensor& output, Tensor gradient) {
    INK_CHECK(output.defined() && requires_grad(output),
              "backward: the tensor does not require grad and was not computed from one that does");
    check_fresh("backward", output, 0);
    if (!gradient.defined()) {
      INK_CHECK(output.numel() == 1, "backward: expected a tensor with one element, got ",
                output.shape(),
                "; pass the gradient to start from, or reduce it first (sum, mean)");
      gradient = ones_like(output);
    }
    deliver(output.slot(), gradient, "backward");
  }

  void run() {
    const Restore<Sink*> sink_scope(running_sink, &sink_);
    while (!pending_.empty()) {
      Pending pending = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      visit(pending);
    }
    for (auto& [slot, sum] : hooked_leaves_) {
      for (const auto& hook : slot->hooks) apply(hook, sum);
      if (Tensor* cell = sink_.find(slot)) store(*cell, std::move(sum));
    }
  }

 private:
  struct Pending {
    std::shared_ptr<Node> node;
    Grads dys;
  };
  struct Asked : VjpContext {
    Asked(Walk& walk, const Node& node) : walk_(walk), node_(node) {}
    bool needs(size_t i) const override {
      const auto& slot = node_.inputs[i];
      return slot && (slot->node || walk_.sink_.find(slot) != nullptr);
    }
    Tensor into(size_t i) override {
      Tensor* sum = walk_.create_graph_ || !needs(i) ? nullptr : walk_.collected(node_.inputs[i]);
      if (sum == nullptr || !sum->defined() || !sum->sole_owner()) return {};
      given_[i] = true;
      return *sum;
    }
    bool given(size_t i) const { return given_[i]; }

   private:
    Walk& walk_;
    const Node& node_;
    std::vector<bool> given_ = std::vector<bool>(node_.inputs.size());
  };

  // The sum a slot's gradient is collected in.
  Tensor* collected(const std::shared_ptr<GradSlot>& slot) {
    if (!slot->node) return slot->hooks.empty() ? sink_.find(slot) : &hooked_leaves_[slot];
    Pending& pending = pending_[slot->node->order];
    if (!pending.node) pending = {slot->node, Grads(slot->node->outputs.size())};
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
      const std::shared_ptr<GradSlot> slot = pending.node->outputs[i].lock();
      Tensor& dy = pending.dys[i];
      if (!slot || !dy.defined()) continue;
      for (const auto& hook : slot->hooks) apply(hook, dy);
      if (slot->retain_grad) slot->grad = dy;
      if (Tensor* cell = sink_.captured(*slot)) *cell = dy;
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
    const Restore<const Node*> node_scope(running_node, &node);
    const FlagGuard grad_mode(&Context::grad_enabled, create_graph_);
    for (Observer* observer : context().observers) observer->before_vjp(node);
    Asked asked(*this, node);
    Grads dxs = node.vjp(pending.dys, asked);
    INK_CHECK(dxs.size() == node.inputs.size(), node.name, ": its vjp returned ", dxs.size(),
              " gradients for ", node.inputs.size(), " inputs");
    for (Observer* observer : context().observers) observer->after_vjp(node, dxs);
    pending.dys.clear();
    for (size_t i = 0; i < dxs.size(); ++i) {
      Tensor dx = std::move(dxs[i]);
      if (node.inputs[i] && dx.defined() && !asked.given(i))
        deliver(node.inputs[i], std::move(dx), node.name);
    }
    if (!retain_graph_) free(node);
  }

  static void free(Node& node) {
    node.freed = true;
    node.vjp = nullptr;
    node.inputs.clear();
  }

  Sink& sink_;
  const bool retain_graph_, create_graph_;
  std::map<uint64_t, Pending, std::greater<>> pending_;  // newest first
  std::map<std::shared_ptr<GradSlot>, Tensor> hooked_leaves_;
};

void walk(Sink& sink, const std::vector<Tensor>& outputs, const Grads& grads, bool retain_graph,
          bool create_graph) {
  INK_CHECK(grads.empty() || grads.size() == outputs.size(), "backward: got ", grads.size(),
            " gradients for ", outputs.size(), " outputs");
  const FlagGuard grad_mode(&Context::grad_enabled, create_graph);
  Walk steps(sink, retain_graph, create_graph);
  for (size_t i = 0; i < outputs.size(); ++i)
    steps.seed(outputs[i], grads.empty() ? Tensor() : grads[i]);
  steps.run();
}

}  // namespace

struct StoreSink : Sink {
  explicit StoreSink(GradStore& store) : store_(store) {}
  Tensor* find(const std::shared_ptr<GradSlot>& slot) override {
    const auto [entry, added] = store_.index_.try_emplace(slot.get(), store_.grads_.size());
    if (added) store_.grads_.emplace_back(slot, Tensor());
    return &store_.grads_[entry->second].second;
  }
  GradStore& store_;
};

Tensor GradStore::get(const Tensor& leaf) const {
  const auto found = index_.find(leaf.slot().get());
  return found == index_.end() ? Tensor() : grads_[found->second].second;
}

void GradStore::add_to_leaves() {
  const NoGrad no_grad;
  for (auto& [slot, g] : grads_) {
    if (g.defined()) add_to(slot->grad, std::exchange(g, {}), false);
  }
  grads_.clear();
  index_.clear();
}

void backward(const std::vector<Tensor>& outputs, const Grads& grads, bool retain_graph,
              bool create_graph) {
  LeafSink sink;
  walk(sink, outputs, grads, retain_graph || create_graph, create_graph);
}

void backward(const Tensor& loss, GradStore& store) {
  StoreSink sink(store);
  walk(sink, {loss}, {}, false, false);
}

void detail::backward_nested(const std::vector<Tensor>& outputs, const Grads& grads) {
  LeafSink leaves;
  walk(running_sink ? *running_sink : leaves, outputs, grads, false, false);
}

Grads grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
           const Grads& grad_outputs, bool retain_graph, bool create_graph) {
  CaptureSink sink;
  for (const Tensor& input : inputs) {
    INK_CHECK(input.defined() && requires_grad(input), "grad: an input of the derivative, ",
              input.shape(), ", does not require grad");
    sink.wanted[input.slot().get()];
  }
  walk(sink, outputs, grad_outputs, retain_graph || create_graph, create_graph);
  Grads result;
  for (const Tensor& input : inputs) result.push_back(sink.wanted[input.slot().get()]);
  return result;
}

// ---- the autograd half of Tensor
// ---------------------------------------------------------------------------------

bool Tensor::requires_grad() const { return ink::requires_grad(*this); }
bool Tensor::is_leaf() const { return !slot_ || !slot_->node; }
Tensor Tensor::grad() const { return slot_ ? slot_->grad : Tensor(); }

void Tensor::set_grad(const Tensor& grad) {
  INK_CHECK(slot_, "set_grad: the tensor does not require grad");
  INK_CHECK(!grad.defined() || grad.shape() == shape(), "set_grad: expected shape ", shape(),
            ", got ", grad.shape());
  slot_->grad = grad;
}

Tensor& Tensor::requires_grad_(bool value) {
  INK_CHECK(!value || is_floating(), "requires_grad_: expected a floating dtype, got ", dtype_);
  INK_CHECK(is_leaf(),
            "requires_grad_: only a leaf's flag can be set; this tensor was computed by ",
            slot_->node->name);
  if (!slot_ && value) {
    slot_ = std::make_shared<GradSlot>();
    slot_->shape = shape();
  }
  if (slot_) slot_->requires_grad = value;
  return *this;
}

Tensor& Tensor::retain_grad() {
  INK_CHECK(requires_grad(), "retain_grad: the tensor does not require grad");
  slot_->retain_grad = true;
  return *this;
}

void Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) {
  INK_CHECK(requires_grad(), "register_hook: the tensor does not require grad");
  slot_->hooks.push_back(std::move(hook));
}

Tensor Tensor::detach() const {
  Tensor result = *this;
  result.slot_ = nullptr;
  return result;
}

void Tensor::backward() const { ink::backward({*this}); }
void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  ink::backward({*this}, {gradient}, retain_graph, create_graph);
}

}  // namespace ink
