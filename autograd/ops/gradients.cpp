// The arithmetic that the engine needs (engine/graph.h): how gradients are added up, the gradient
// from which a walk starts, and the gradients of a definition.
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "autograd/basic_ops.h"

namespace ink {

void detail::add_gradient(Tensor& sum, Tensor g, bool kept, bool create_graph) {
  if (!sum.defined()) {
    const bool own = !kept || g.alone();
    sum = own ? std::move(g) : g.clone();
    if (kept && sum.is_view()) sum = sum.detach();  // its base is gone
  } else if (create_graph) {
    sum = add(sum, g);
  } else if (kept ? !sum.layout().repeats() : sum.alone()) {
    sum.add_(g);
  } else if (kept) {
    sum.impl().array = add(sum, g).array();  // several of its elements share one place in memory
  } else {
    sum = add(sum, g);
  }
}

// The constant 1 for each dtype and device. It is made anew if someone has written to it.
static Array constant_one(Options options) {
  constexpr uint64_t kAsMade = 1;  // version: a single write
  static std::mutex mutex;
  static auto* made = new std::map<std::tuple<DType, Device::Type, int>, Array>;
  const std::lock_guard lock(mutex);
  Array& kept = (*made)[{options.dtype, options.device.type, options.device.index}];
  if (!kept.defined() || kept.storage()->version != kAsMade) kept = full({}, 1, options).array();
  return kept;
}

Tensor detail::first_gradient(const Tensor& output) {
  const Layout layout{output.shape(), Shape::filled(output.dim(), 1), 0};
  return Tensor(constant_one(output.options()).seen_as(layout));
}

bool is_one(const Tensor& gradient) {
  return gradient.numel() == 1 && gradient.storage() == constant_one(gradient.options()).storage();
}

// The definition starts from new nodes, so that the walk ends there.
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
