// The engine: records what ops did, and walks it backwards. It orders and sums gradients, and knows
// nothing of ops. The idea, with scalars, a tape and no corner cases:
//
//   struct Number { double data, grad = 0; };
//   using Value = std::shared_ptr<Number>;
//   struct Node { std::function<double(double)> vjp; Value input, output; };
//   std::vector<Node> tape;                                // in the order in which ops ran
//
//   Value exp(Value x) {
//     const double e = std::exp(x->data);
//     Value y = std::make_shared<Number>(e);
//     tape.push_back({[e](double dy) { return dy * e; }, x, y});
//     return y;
//   }
//
//   void backward(Value loss) {
//     loss->grad = 1;
//     for (auto node = tape.rbegin(); node != tape.rend(); ++node)     // the newest first
//       node->input->grad += node->vjp(node->output->grad);            // sums where paths meet
//   }
//
// The real engine differs in three points. There is no tape: a result's slot owns its node, which
// owns the slots of its inputs, so a graph lives as long as its result. A node has several inputs
// and outputs. The walk (backward.cpp: run and visit) visits only nodes on which the loss depends,
// and frees what a node saved as soon as it has run.
//
//   slot   A tensor's place in the graph. A recorded write in place gives the tensor another one.
//          A leaf is a slot that requires grad and has no node.
//   node   One op that ran: its name, the slots of its inputs and outputs, and its vjp
//          (vector-Jacobian product).
//   walk   One pass of backward: it visits pending nodes (an output has a gradient), newest first,
//          because creation order is a topological order.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// One gradient per input (or output) of a node; an undefined one stands for zero.
using Grads = std::vector<Tensor>;
/// One tensor or several, where an argument may be either: y, {y, z} or a vector of them.
struct TensorList : std::vector<Tensor> {
  using std::vector<Tensor>::vector;
  TensorList(const Tensor& one) : vector{one} {}
  TensorList(std::vector<Tensor> several) : vector(std::move(several)) {}
};
struct Node;
class GradStore;

/// The hooks of a slot by number, the oldest first. Those of `after` run under a lock of the slot's
/// own, so that those of other slots may run meanwhile; those of `before` under none.
struct Hooks {
  std::map<uint64_t, std::function<Tensor(const Tensor&)>> before;  // called with the gradient
  std::map<uint64_t, std::function<void()>> after;  // called when a leaf's grad has been written
  std::recursive_mutex mutex;
};

struct GradSlot {
  /// For a tensor with this array; a leaf as long as `node` is null.
  explicit GradSlot(const Array& x) : shape(x.shape()), dtype(x.dtype()), device(x.device()) {}
  ~GradSlot();  // takes long chains apart without recursion

  bool requires_grad = true;
  bool retain_grad = false;
  std::shared_ptr<Node> node;  // computes the tensor; null for a leaf
  int output_index = 0;        // which of the node's outputs
  Shape shape;                 // these three are the tensor's, and so its gradient's
  DType dtype;
  Device device;
  Tensor grad;
  std::unique_ptr<Hooks> hooks;  // null: none

  /// Throws "from: expected a gradient ..." unless g has the shape, dtype and device.
  void check_gradient(const char* from, const Tensor& g) const;
  /// Passes g to the hooks, each of which may replace it.
  void run_hooks(Tensor& g) const;
  /// Held while `grad` is added to, because several threads' walks may share the slot. Other slots
  /// share it, too, unless this one has hooks.
  std::recursive_mutex& mutex() const;
  /// Adds the complete gradient of a walk to a leaf's grad, and runs the leaf's hooks.
  void accumulate(Tensor g, bool create_graph);
  /// Where backward() leaves the gradient; null if it is not kept.
  Tensor* own_grad() {
    return node ? (retain_grad ? &grad : nullptr) : requires_grad ? &grad : nullptr;
  }
};

/// What a vjp may ask of the walk; an op may ignore it.
class VjpContext {
 public:
  virtual ~VjpContext() = default;
  /// Does anyone want the gradient of input i? If not, its place in the result may stay undefined.
  virtual bool needs(size_t i) const = 0;
  /// The gradient collected so far for input i, to add into and return (contiguous, solely owned).
  /// If it is undefined, the vjp returns a tensor of its own.
  virtual Tensor sum_so_far(size_t i) = 0;
  /// Continues the walk backward from y, a tensor that the vjp has just computed again, with
  /// gradient dy. The walk delivers the gradients reached from y, so the vjp must not return them
  /// itself. (checkpoint)
  virtual void continue_from(const Tensor& y, const Tensor& dy) = 0;
};

/// Computes an op's output again, from what its vjp saves anyway.
using Recomputation = std::function<Tensor()>;

/// Gradients of the inputs from those of the outputs.
using Vjp = std::function<Grads(const Grads& dys, VjpContext& g)>;

struct Node : std::enable_shared_from_this<Node> {
  const char* name;
  const char* shown = nullptr;  // what a print calls it, if not `name` (shown_as)
  uint64_t order;               // counts up as nodes are made
  bool freed = false;
  bool keeps_nothing = false;                     // its vjp saves nothing, so it is never freed
  int walks = 0;                                  // how many walks hold it now (survey.cpp)
  const void* freeing_thread = nullptr;           // the thread whose walk will free it, or null
  std::vector<std::shared_ptr<GradSlot>> inputs;  // null: a constant
  std::vector<std::weak_ptr<GradSlot>> outputs;
  /// The slot of output i, a new one if nobody holds it.
  std::shared_ptr<GradSlot> output_slot(size_t i, const Array& value);
  Vjp vjp;
  Recomputation recompute;  // empty unless the op is cheap and ran under Recompute
  uint64_t recomputed = 0;  // the version of the memory that holds what `recompute` gives

  explicit Node(const char* op);
  ~Node();
  static std::atomic<uint64_t> made;  // the order of the next node
  static std::atomic<int64_t> live;   // nodes that exist now
  static thread_local Node* running;  // the one whose vjp runs on this thread
};

/// What a vjp saves of a tensor: its memory and its place in the graph. It does not keep the tensor
/// itself, because a later write may give the tensor another place. Unpacking (*saved) throws if
/// the memory was written since.
class Saved {
 public:
  /// Keeps the slot as well, so that second derivatives reach it. If the slot's node can compute
  /// the tensor again, only the slot is kept, and each unpacking computes it.
  static Saved input(const Tensor& x, const char* what = "an input") { return Saved(x, -1, what); }
  /// Keeps only the memory of output `index` (no cycle); unpacking gives it the running node's
  /// slot.
  static Saved output(const Tensor& y, int index = 0) { return Saved(y, index, "its output"); }
  Tensor operator*() const;

 private:
  Saved(const Tensor& tensor, int output_index, const char* what);
  Array array_;
  std::shared_ptr<GradSlot> slot_;
  uint64_t version_ = 0;
  int output_index_;
  const char* what_;
};

/// Puts `outputs`, computed from `inputs`, into the graph if any input requires grad (and grad mode
/// is on), and returns them. Undefined inputs are allowed; they get no gradient. An output that is
/// already in a graph, or is an input, is replaced by another tensor on the same memory. `name` is
/// a literal, or lives as long as the graph.
std::vector<Tensor> record(const char* name, const std::vector<Tensor>& inputs,
                           std::vector<Tensor> outputs, Vjp vjp, Recomputation recompute = {},
                           bool keeps_nothing = false);

namespace detail {
bool wants_record(const std::vector<Tensor>& inputs);  // also true while someone observes
/// The node that computes `outputs`, which get its slots.
std::shared_ptr<Node> make_node(const char* name, std::vector<std::shared_ptr<GradSlot>> inputs,
                                std::vector<Tensor>& outputs, Vjp vjp);
/// Turns the short forms, vjp(dy) and vjp(dy, g), into the full one.
template <class F>
Vjp full_vjp(F&& f) {
  if constexpr (std::is_invocable_v<F&, const Tensor&>) {
    return [f = std::forward<F>(f)](const Grads& dys, VjpContext&) -> Grads { return f(dys[0]); };
  } else if constexpr (std::is_invocable_v<F&, const Tensor&, VjpContext&>) {
    return
        [f = std::forward<F>(f)](const Grads& dys, VjpContext& g) -> Grads { return f(dys[0], g); };
  } else {
    return std::forward<F>(f);
  }
}
}  // namespace detail

/// The same for one output; the vjp is vjp(dy) or vjp(dy, g). A cheap op says how to compute its
/// output again: see Recompute.
template <class F>
Tensor record(const char* name, const std::vector<Tensor>& inputs, Tensor output, F&& vjp,
              Recomputation recompute = {}) {
  if (!detail::wants_record(inputs)) return output;
  return record(name, inputs, std::vector<Tensor>{std::move(output)},
                detail::full_vjp(std::forward<F>(vjp)), std::move(recompute),
                std::is_trivially_destructible_v<std::decay_t<F>>)[0];
}

/// Makes prints call the node of y, which was just recorded, `name`. For nodes whose grad_fn has
/// another name in PyTorch than our op: "sum.1" prints SumBackward1. Returns y.
inline Tensor shown_as(const char* name, Tensor y) {
  if (y.slot() && y.slot()->node) y.slot()->node->shown = name;
  return y;
}

/// Is this gradient the 1 that backward() starts from, so that nothing need be scaled by it? False
/// if only the device knows its value.
bool is_one(const Tensor& gradient);

/// Adds d outputs / d leaf to the grad of every leaf. grads: one per output; an undefined one means
/// 1 (one element only). Several threads may walk graphs of their own into the same leaves; the
/// order of their sums is not fixed, as it is with stores. With create_graph a grad and its graph
/// hold each other: see Tensor::backward.
void backward(const TensorList& outputs, const TensorList& grads = {}, bool retain_graph = false,
              bool create_graph = false);
/// The same into a store instead of the leaves: several threads may walk one model's graphs at
/// once.
void backward(const Tensor& loss, GradStore& store);
/// Returns d outputs / d inputs and changes no leaf's grad. A gradient is undefined if no output
/// depends on its input.
///   const Tensor dx = grad(y, x)[0];
Grads grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs = {},
           bool retain_graph = false, bool create_graph = false);

namespace detail {
// Views and writes (writes.cpp), for ops that write in place:
/// Must a write into x be recorded? Throws if it cannot be. value_in_graph: does the value that is
/// written require grad?
bool check_write(const char* op, const Tensor& x, bool value_in_graph);
/// Call it after `value`, a new tensor of x's shape and dtype, was written to x's memory. x then
/// takes value's place in the graph; if x is a view, its base takes that of copy_slices.
void record_write(Tensor& x, const Tensor& value);
/// The same for a value that depends on nothing (ops/in_place.cpp).
void record_fill(const char* op, Tensor& x);

// All that the engine asks of arithmetic:
/// sum += g, by recorded ops with create_graph. A sum of the walk shares the first g, becomes a
/// tensor of its own at the second, and is added to in place after that. A kept sum (a leaf's grad)
/// takes a first g that nobody else holds and copies any other; without create_graph it stays the
/// same tensor.
void add_gradient(Tensor& sum, Tensor g, bool kept, bool create_graph);
/// The gradient of ones from which a walk starts.
Tensor first_gradient(const Tensor& output);
/// The view of x that sees its memory through `layout` (ops/as_strided.cpp).
Tensor as_strided(const Tensor& x, const Layout& layout);
/// Zeros in the layout `whole`, with x added at the places of the layout `part`.
Tensor scatter_strided(const Tensor& x, const Layout& whole, const Layout& part);
/// Records that `value` was written to the places of x's memory that `layout` names.
Tensor copy_slices(const Tensor& x, const Tensor& value, const Layout& layout);
}  // namespace detail

/// The gradients of a definition at `inputs`, computed by ops that can be differentiated again;
/// undefined for an input that does not require grad. A fused op's vjp calls it if grad_enabled(),
/// because in a vjp that means that the gradient will be differentiated.
Grads differentiate(const std::function<Tensor(const std::vector<Tensor>&)>& definition,
                    const std::vector<Tensor>& inputs, const Tensor& dy);

}  // namespace ink
