#include "autograd/engine/grad_store.h"

namespace ink {

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
  auto grads = std::exchange(grads_, {});
  index_.clear();
  for (auto& [slot, g] : grads) {
    if (g.defined()) slot->accumulate(std::move(g), false);
  }
}

}  // namespace ink
