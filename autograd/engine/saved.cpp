// Saved: what a vjp keeps of a tensor, which is its memory or the way to compute it again.
#include "autograd/engine/graph.h"

namespace ink {
namespace {

Tensor at_slot(const Array& array, const std::shared_ptr<GradSlot>& slot) {
  Tensor x(array);
  x.set_slot(slot);
  return x;
}

Tensor computed_again(const std::shared_ptr<GradSlot>& slot) {
  INK_CHECK(slot->node->recompute, "the graph through ", slot->node->name,
            ", whose output is computed again, was freed by an earlier walk; pass retain_graph to "
            "the first one, or run the forward again");
  return at_slot(slot->node->recompute(), slot);
}

}  // namespace

Saved::Saved(const Tensor& tensor, int output_index, const char* what)
    : output_index_(output_index), what_(what) {
  if (!tensor.defined()) return;
  if (output_index < 0) slot_ = tensor.slot();
  const Node* node = slot_ ? slot_->node.get() : nullptr;
  if (node && node->recompute && node->recomputed == tensor.version()) return;
  array_ = tensor.array();
  version_ = tensor.version();
}

Tensor Saved::operator*() const {
  if (!array_.defined()) return slot_ ? computed_again(slot_) : Tensor();
  const uint64_t version = array_.storage()->version;
  INK_CHECK(version == version_, what_, ", ", array_.shape(), " ", array_.dtype(),
            ", was saved at version ", version_, " and has been written since (now version ",
            version, "); write out of place (x = x + y) or clone() first");
  if (output_index_ < 0 || Node::running == nullptr || !grad_enabled())
    return at_slot(array_, slot_);
  return at_slot(array_, Node::running->output_slot(static_cast<size_t>(output_index_), array_));
}

}  // namespace ink
