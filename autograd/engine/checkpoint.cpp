#include "autograd/engine/checkpoint.h"

#include <utility>

#include "autograd/engine/graph.h"

namespace ink {

// The first run's graph dies here, with all that it saved. In backward the second run records a new
// one, from the very same inputs and parameters, and the walk goes on in it: gradients meet in the
// places and in the order of a plain call.
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                  const std::vector<Tensor>& inputs) {
  const Context first_run = context();
  std::vector<Saved> saved;
  for (const Tensor& x : inputs) saved.push_back(Saved::input(x));
  Tensor y = fn(inputs);
  if (!y.requires_grad()) return y;
  return record("checkpoint", inputs, std::vector<Tensor>{std::move(y)},
                [fn, saved, first_run](const Grads& dys, VjpContext& g) -> Grads {
                  Context second_run = first_run;
                  second_run.observers = context().observers;  // the first run's may be gone
                  const ContextGuard guard(second_run);
                  std::vector<Tensor> xs;
                  for (const Saved& x : saved) xs.push_back(*x);
                  g.continue_from(fn(xs), dys[0]);
                  return Grads(xs.size());
                })[0];
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input) {
  return checkpoint([fn](const std::vector<Tensor>& x) { return fn(x[0]); },
                    std::vector<Tensor>{input});
}

}  // namespace ink
