// Slots: what a gradient must be, and who wants to see it.
#include "autograd/engine/graph.h"

namespace ink {
namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> numbers{0};
  return ++numbers;
}

}  // namespace

void GradSlot::check_gradient(const char* from, const Tensor& g) const {
  INK_CHECK(g.shape() == shape, from, ": expected a gradient of shape ", shape, ", got ",
            g.shape());
  INK_CHECK(g.dtype() == dtype && g.device() == device, from, ": expected a gradient of ", dtype,
            " on ", device, ", as the tensor, got ", g.dtype(), " on ", g.device());
}

// The copies of the lists are for hooks that remove themselves.
void GradSlot::run_hooks(Tensor& g) const {
  if (hooks.empty()) return;
  for (const auto& [number, hook] : std::map(hooks)) {
    const Tensor other = hook(g);
    if (!other.defined()) continue;
    check_gradient("hook", other);
    g = other;
  }
}

void GradSlot::accumulate(Tensor g, bool create_graph) {
  run_hooks(g);
  detail::add_gradient(grad, std::move(g), true, create_graph);
  if (after_hooks.empty()) return;
  for (const auto& [number, hook] : std::map(after_hooks)) hook();
}

void HookHandle::remove() {
  const auto slot = slot_.lock();
  if (!slot) return;
  slot->hooks.erase(number_);
  slot->after_hooks.erase(number_);
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) {
  INK_CHECK(requires_grad(), "register_hook: the tensor does not require grad");
  const uint64_t number = next_number();
  slot()->hooks.emplace(number, std::move(hook));
  return {slot(), number};
}

HookHandle Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) {
  INK_CHECK(requires_grad() && is_leaf(),
            "register_post_accumulate_grad_hook: expected a leaf that requires grad");
  const uint64_t number = next_number();
  slot()->after_hooks.emplace(number, [hook = std::move(hook), self = std::weak_ptr(impl_)] {
    if (auto impl = self.lock()) hook(Tensor(std::move(impl)));
  });
  return {slot(), number};
}

}  // namespace ink
