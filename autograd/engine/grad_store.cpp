#include "autograd/engine/grad_store.h"

#include "autograd/base/parallel.h"

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

void GradStore::add_to_leaves() {
  const NoGrad no_grad;
  GradStore taken = std::exchange(*this, {});
  for (auto& [slot, g] : taken.grads_)
    if (g.defined()) slot->accumulate(std::move(g), false);
}

void GradStore::add_to_leaves(std::vector<GradStore>& stores) {
  if (stores.empty()) return;
  GradStore& all = stores[0];
  for (const GradStore& store : stores)
    for (const auto& entry : store.grads_) all.cell(entry.first);
  const Context caller = context();
  parallel_for(std::ssize(all.grads_), 1, [&](int64_t begin, int64_t end) {
    const ContextGuard guard(caller);
    const NoGrad no_grad;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      auto& [slot, sum] = all.grads_[i];
      for (size_t k = 1; k < stores.size(); ++k) {
        const auto found = stores[k].index_.find(slot.get());
        if (found == stores[k].index_.end()) continue;
        Tensor part = std::exchange(stores[k].grads_[found->second].second, {});
        if (part.defined()) detail::add_gradient(sum, std::move(part), false, false);
      }
    }
  });
  all.add_to_leaves();  // on this thread, one by one, because users' hooks may run
  for (GradStore& store : stores) store = {};
}

}  // namespace ink
