#include "autograd/engine/checkpoint.h"

#include <memory>
#include <unordered_set>
#include <utility>

#include "autograd/engine/graph.h"
#include "autograd/random/generator.h"

namespace ink {
namespace {

using Slot = std::shared_ptr<GradSlot>;

// The slots that nodes made since number `first` computed y from: inputs, and what fn captured.
std::vector<Slot> sources_of(const Tensor& y, uint64_t first) {
  std::vector<Slot> sources, path{y.slot()};
  std::unordered_set<const GradSlot*> seen;
  while (!path.empty()) {
    const Slot slot = std::move(path.back());
    path.pop_back();
    if (!slot || !seen.insert(slot.get()).second) continue;
    if (!slot->node || slot->node->order < first) {
      sources.push_back(slot);
    } else {
      path.insert(path.end(), slot->node->inputs.begin(), slot->node->inputs.end());
    }
  }
  return sources;
}

}  // namespace

// The first run's graph dies here, with all that it saved. In backward the second run records a new
// one from the same inputs and parameters, and the walk goes on in it. So gradients are summed in
// the same places and the same order as in a plain call.
Tensor detail::checkpoint_of(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                             const std::vector<Tensor>& inputs) {
  const Context first_run = context();
  const std::vector<uint8_t> draws = generator_state();
  std::vector<Saved> saved;
  for (const Tensor& x : inputs) saved.push_back(Saved::input(x));
  const uint64_t first = Node::made;
  Tensor y = fn(inputs);
  if (!y.requires_grad()) return y;
  const std::vector<Slot> sources = sources_of(y, first);
  const auto vjp = [fn, saved, first_run, draws, count = sources.size()](const Grads& dys,
                                                                         VjpContext& g) -> Grads {
    Context second_run = first_run;
    second_run.observers = context().observers;  // the first run's may be gone
    second_run.random.given_by = 0;              // whoever seeds since then
    const ContextGuard guard(second_run);
    const DrawAgain again(draws);
    std::vector<Tensor> xs;
    for (const Saved& x : saved) xs.push_back(*x);
    g.continue_from(fn(xs), dys[0]);
    return Grads(count);
  };
  std::vector<Tensor> output{y.detach()};
  y = Tensor();
  // A write to the result must not reach an input, or the tensor that it is a view of.
  if (!output[0].alone()) output[0] = output[0].clone();
  detail::make_node("checkpoint", sources, output, vjp);
  return output[0];
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input) {
  return detail::checkpoint_of([fn](const std::vector<Tensor>& x) { return fn(x[0]); }, {input});
}

}  // namespace ink
