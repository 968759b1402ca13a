// Observers: objects that see every op.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/engine/graph.h"

namespace ink {

/// Sees every op as it is recorded and every vjp as it runs, on the threads whose context lists it.
/// The NaN sentinel, the profiler and the test harness are observers.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Every op that has a gradient, as it ran; `recorded` says whether it entered a graph.
  virtual void op(const char* /*name*/, const std::vector<Tensor>& /*inputs*/,
                  const std::vector<Tensor>& /*outputs*/, bool /*recorded*/) {}
  /// Work outside of any graph that has just ended: see note_work().
  virtual void work(const char* /*name*/, const std::vector<Tensor>& /*read*/,
                    const std::vector<Tensor>& /*written*/) {}
  virtual void before_vjp(const Node& /*node*/) {}
  virtual void after_vjp(const Node& /*node*/, const Grads& /*input_grads*/) {}
};

/// Lists an observer in the calling thread's context while it lives. It dies in that thread, and
/// not within a ContextGuard that was entered since and would list the observer again.
class Observe {
 public:
  [[nodiscard]] explicit Observe(Observer& o) : own_(o) { context().observers.push_back(&own_); }
  ~Observe() {
    std::vector<Observer*>& all = context().observers;
    const auto own = std::find(all.begin(), all.end(), &own_);
    if (own != all.end()) all.erase(own);
  }
  Observe(const Observe&) = delete;

 private:
  Observer& own_;
};

/// Tells the observers that something other than an op has ended, such as a batch or an optimizer's
/// update, and which tensors it read and wrote.
inline void note_work(const char* name, const std::vector<Tensor>& read,
                      const std::vector<Tensor>& written) {
  for (Observer* observer : context().observers) observer->work(name, read, written);
}

}  // namespace ink
