// Views and writes: who shares memory with whom, and what a write does to the graph.
//
// A view holds its base, the tensor whose memory it sees; a view of a view holds the same base. A
// recorded write gives a tensor another place in the graph:
//
//   x is no view   x takes the place of the value.
//   x is a view    its base takes the place of copy_slices(base, value).
//
// Either way the tensor that moved counts its moves. A view whose base has moved since derives its
// own place again when it is next used.
//
// Without a graph, or under NoGrad, a write is plain memory. Backward finds a saved tensor that was
// overwritten by the version of its storage.
#include <algorithm>
#include <mutex>
#include <utility>

#include "autograd/engine/graph.h"

namespace ink {
namespace {

// retain_grad goes with the tensor. Hooks stay at the old place, because they were registered for
// the value before the write.
void move(TensorImpl& x, const std::shared_ptr<GradSlot>& to) {
  if (x.slot && x.slot->retain_grad && to) {
    to->retain_grad = std::exchange(x.slot->retain_grad, false);
    to->grad = std::exchange(x.slot->grad, {});
  }
  x.slot = to;
}

}  // namespace

// A view taken under NoGrad does not hold its base, because it would keep a graph alive.
Tensor Tensor::alias(const Layout& layout) const {
  Tensor y(array("alias").seen_as(layout));
  TensorImpl& view = *y.impl_;
  view.is_view = true;
  if (grad_enabled() && (impl_->base || !impl_->is_view)) {
    view.base = impl_->base ? impl_->base : impl_;
    view.base_moves = view.base->moves;
  } else {
    view.not_followed = impl_->base ? impl_->base : impl_->is_view ? impl_->not_followed : impl_;
  }
  return y;
}

// Observers do not see it: it is no op of the user's, and one that looks at views would return.
const std::shared_ptr<GradSlot>& Tensor::derive_again() const {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const uint64_t moves = impl_->base->moves;
  if (impl_->base_moves == moves) return impl_->slot;  // another thread was here meanwhile
  const EnableGrad enable_grad;
  const FieldGuard<std::vector<Observer*>> unseen(&Context::observers, {});
  move(*impl_, detail::as_strided(Tensor(impl_->base), layout()).slot());
  impl_->base_moves = moves;
  return impl_->slot;
}

bool detail::check_write(const char* op, const Tensor& x, bool value_in_graph) {
  const TensorImpl& impl = x.impl(op);
  INK_CHECK(!impl.is_of_module || context().random.rows == 0, op, ": a module's ",
            x.requires_grad() ? "parameter, " : "buffer, ", x.shape(),
            ", is written by a part of a batch, beside which others run; take one part "
            "(batch_parts = 1)");
  if (!grad_enabled()) return false;
  const Tensor owner = impl.base ? Tensor(impl.base) : x;
  const bool in_graph = owner.requires_grad() || x.requires_grad();
  INK_CHECK(!(in_graph && owner.is_leaf()), op, ": ", impl.base ? "a view of " : "",
            "a leaf that requires grad, ", x.shape(),
            ", cannot be written in place while a graph is recorded; do it under NoGrad, or on "
            "x.detach()");
  const bool missed = Tensor(impl.not_followed.lock()).requires_grad();
  INK_CHECK(!missed && !(impl.is_view && !impl.base && value_in_graph), op, ": a view, ", x.shape(),
            ", that was taken under NoGrad cannot be written while a graph is recorded, because "
            "the graph would not see it; take the view again, or write under NoGrad");
  const bool recorded = in_graph || value_in_graph;
  INK_CHECK(!recorded || !owner.layout().repeats(), op, ": a view, ", x.shape(), ", of ",
            owner.shape(),
            ", of which several elements lie in one place (it was expanded or unfolded); "
            "clone() that first");
  return recorded;
}

void detail::record_write(Tensor& x, const Tensor& value) {
  TensorImpl& impl = x.impl();
  const Tensor owner = impl.base ? Tensor(impl.base) : x;
  move(owner.impl(), impl.base ? copy_slices(owner, value, x.layout()).slot() : value.slot());
  ++owner.impl().moves;
  if (impl.base && impl.slot && impl.slot->retain_grad) x.slot();  // retain_grad moves on, too
}

// Checks the left side of x.index({0}) = y. A view with memory of its own would hide the value.
Tensor& Tensor::checked_target() {
  const TensorImpl& view = impl("=");
  const int64_t holders = view.base ? view.base.use_count() : view.array.storage().use_count();
  INK_CHECK(view.is_view && holders > 1,
            "=: expected a view on the left, as in x.index({0}) = y, got a temporary, ", shape(),
            ", whose new value nobody would see; rows by ids are written with "
            "x.index_put_({ids}, y), gradients with set_grad");
  return *this;
}

// Refuses x[ids] += y, whose left side is a copy that nobody else holds.
Tensor& Tensor::seen_by_others() {
  const TensorImpl& written = impl("in-place operator");
  const auto holders =
      written.base ? written.base.use_count() : std::max(impl_.use_count(), storage().use_count());
  INK_CHECK(holders > 1,
            "in-place operator: expected a view on the left, as in x.index({0}) += y, got a copy, ",
            shape(),
            ", whose new value nobody would see; rows by ids are added to with "
            "x.index_put_({ids}, y, true), which adds as often as an id comes");
  return *this;
}

}  // namespace ink
