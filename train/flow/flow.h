// Flow: the ops that ran, by the modules of a model, and what each one took from which.
//
//   Flow flow(model);
//   {
//     const Observe observe(flow);
//     model.loss(x, y).backward();
//   }
//   for (const FlowOp& op : flow.ops()) std::cout << op.title() << "\n";   // "h.0.ln_1 layer_norm"
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/engine/observer.h"
#include "nn/module.h"

namespace ink {

/// An op that entered the graph. Views (split, transpose), copies and casts are not listed: what
/// reads one reads what it was made from.
struct FlowOp {
  /// An operand: the output of an earlier op, a parameter, or data.
  struct Input {
    int64_t from = -1;      // index of the op; -1: none
    std::string parameter;  // "h.0.ln_1.weight"; empty: not a parameter
    Shape shape;
  };

  std::string name;    // "linear"
  std::string module;  // that it belongs to: "h.0.attn.c_attn"; empty: the model itself
  bool has_parameters = false;
  std::vector<Input> inputs;  // undefined ones left out
  std::vector<Shape> outputs;
  DType dtype = f32;       // of the first output
  int64_t bytes = 0;       // of the outputs
  int64_t bytes_kept = 0;  // what it computed and backward needs (note_kept)
  double forward_ms = 0;   // since the op before it
  double backward_ms = 0;  // since the vjp before its own

  /// "h.0.attn.c_attn linear"; just "add" for an op of the model itself.
  std::string title() const { return module.empty() ? name : module + " " + name; }
};

/// While it lives, the ops of this thread are neither observed nor recorded.
struct Unseen {
  Unseen() {
    context().observers.clear();
    context().grad_enabled = false;
  }

 private:
  ContextGuard guard_;
};

/// Lists the ops of the calling thread while it is observed. An op that reads parameters belongs to
/// their module, or to the one that holds all of their modules. Any other op belongs to the module
/// around the one whose output it reads: attention reads that of h.0.attn.c_attn, so it belongs to
/// h.0.attn. A parameter with two names (tied) has the second one when a second op reads it. The
/// model must outlive this.
class Flow : public Observer {
 public:
  explicit Flow(const Module& model);

  const std::vector<FlowOp>& ops() const { return ops_; }
  /// Forgets all ops and starts the clock.
  void start();
  /// Fills bytes_kept. Call it between forward and backward, when only the loss is still held.
  void note_kept();

  void op(const char* name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
          bool recorded) override;
  void after_vjp(const Node& node, const Grads& input_grads) override;

 protected:
  /// Called for each op that is listed, with its tensors.
  virtual void listed(const FlowOp& /*op*/, const std::vector<Tensor>& /*inputs*/,
                      const std::vector<Tensor>& /*outputs*/) {}

 private:
  using Clock = std::chrono::steady_clock;
  /// What a slot holds: the output of an op, or a parameter.
  struct Source {
    int64_t from = -1;
    const GradSlot* parameter = nullptr;
  };
  /// The modules that hold a parameter, and how often it was read.
  struct Owner {
    std::vector<std::string> names;
    size_t reads = 0;
  };
  /// The memory of an output.
  struct Memory {
    size_t op;
    std::weak_ptr<Storage> storage;
    int64_t bytes;  // that the allocator took
  };

  void name_parameters(const Module& module, const std::string& prefix);
  Source source(const Tensor& x) const;
  FlowOp::Input input(const Tensor& x);
  void place(FlowOp& op) const;
  void note_memory(FlowOp& op, const std::vector<Tensor>& outputs);
  int64_t forget_freed();  // bytes
  double lap();            // ms since the last event

  std::unordered_map<const GradSlot*, Owner> owners_;
  std::unordered_map<uint64_t, Source> sources_;  // by Node::order
  std::vector<FlowOp> ops_;
  std::vector<Memory> memory_;  // that was alive at the last event
  Clock::time_point last_;
  int64_t in_use_ = 0;  // bytes of the allocator, at the last event
};

}  // namespace ink
