// Slots: their release, the check of a gradient, and hooks.
#include <array>
#include <cstdint>

#include "autograd/engine/graph.h"

namespace ink {
namespace {

// A slot releases its node through here, so that chains of any length are destroyed in a loop.
void release(std::shared_ptr<Node> node) {
  thread_local std::vector<std::shared_ptr<Node>>* queue = nullptr;
  if (queue != nullptr) {
    queue->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<Node>> mine{std::move(node)};
  queue = &mine;
  while (!mine.empty()) {
    const std::shared_ptr<Node> last = std::move(mine.back());
    mine.pop_back();
  }
  queue = nullptr;
}

std::atomic<uint64_t> hooks_made{0};

HookHandle add_hook(const std::shared_ptr<GradSlot>& slot, auto list, auto hook) {
  const uint64_t number = ++hooks_made;
  if (!slot->hooks) slot->hooks = std::make_unique<Hooks>();
  ((*slot->hooks).*list).emplace(number, std::move(hook));
  return {slot, number};
}

}  // namespace

GradSlot::~GradSlot() {
  if (node) release(std::move(node));
}

void GradSlot::check_gradient(const char* from, const Tensor& g) const {
  INK_CHECK(g.shape() == shape, from, ": expected a gradient of shape ", shape, ", got ",
            g.shape());
  INK_CHECK(g.dtype() == dtype && g.device() == device, from, ": expected a gradient of ", dtype,
            " on ", device, ", as the tensor, got ", g.dtype(), " on ", g.device());
}

// The lists are copied because a hook may remove itself.
void GradSlot::run_hooks(Tensor& g) const {
  if (!hooks) return;
  if (is_one(g)) g = g.clone();  // all walks share that constant, and a hook may write to it
  for (const auto& [number, hook] : std::map(hooks->before)) {
    const Tensor other = hook(g);
    if (!other.defined()) continue;
    check_gradient("hook", other);
    g = other;
  }
}

// A lock for each slot would be more memory than it is worth.
std::recursive_mutex& GradSlot::mutex() const {
  if (hooks) return hooks->mutex;
  static auto* locks = new std::array<std::recursive_mutex, 64>;
  return (*locks)[reinterpret_cast<uintptr_t>(this) / sizeof(GradSlot) % locks->size()];
}

void GradSlot::accumulate(Tensor g, bool create_graph) {
  run_hooks(g);
  const std::lock_guard lock(mutex());
  detail::add_gradient(grad, std::move(g), true, create_graph);
  if (!hooks) return;
  for (const auto& [number, hook] : std::map(hooks->after)) hook();
}

void HookHandle::remove() {
  const auto slot = slot_.lock();
  if (!slot) return;
  slot->hooks->before.erase(number_);
  slot->hooks->after.erase(number_);
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) {
  check_defined("register_hook", *this);
  INK_CHECK(requires_grad() && hook, "register_hook: no function, or the tensor requires no grad");
  return add_hook(slot(), &Hooks::before, std::move(hook));
}

HookHandle Tensor::register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) {
  check_defined("register_post_accumulate_grad_hook", *this);
  INK_CHECK(requires_grad() && is_leaf() && hook,
            "register_post_accumulate_grad_hook: expected a function, and a leaf with grad");
  return add_hook(slot(), &Hooks::after, [hook = std::move(hook), self = std::weak_ptr(impl_)] {
    if (auto impl = self.lock()) hook(Tensor(std::move(impl)));
  });
}

}  // namespace ink
