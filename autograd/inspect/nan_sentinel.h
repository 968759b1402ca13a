// NanSentinel: names the first op whose value or gradient is not finite. It sees ops that a graph
// records: under NoGrad, or where no input requires grad, it sees none.
#pragma once

#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/observer.h"

namespace ink {

///   NanSentinel sentinel;
///   const Observe observe(sentinel);
///   model.loss(x, y).backward();
///   std::cout << sentinel.first();      // "the backward of softmax (output (12, 4, 64, 64))"
class NanSentinel : public Observer {
 public:
  /// The first recorded op with a non-finite value or gradient; empty if there was none.
  const std::string& first() const { return first_; }

  void op(const char* name, const std::vector<Tensor>& /*inputs*/,
          const std::vector<Tensor>& outputs, bool recorded) override {
    if (recorded) check(name, outputs);  // others may be views of memory that is not written yet
  }
  void after_vjp(const Node& node, const Grads& input_grads) override {
    check(std::string("the backward of ") + node.name, input_grads);
  }

 private:
  void check(const std::string& what, const std::vector<Tensor>& tensors) {
    if (!first_.empty()) return;
    const ContextGuard guard;
    context().observers.clear();  // the check's own ops are not observed
    context().grad_enabled = false;
    for (const Tensor& x : tensors) {
      if (!x.defined() || !x.is_floating() || all(isfinite(x)).item<bool>()) continue;
      first_ = detail::joined({what, " (output ", x.shape(), ")"});
      return;
    }
  }

  std::string first_;
};

}  // namespace ink
