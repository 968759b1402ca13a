// What nodes keep for their vjps: a tensor, or how to compute it again.
#include "autograd/engine/graph.h"

namespace ink {

Saved::Saved(const Tensor& tensor, int output_index, const char* what)
    : tensor_(tensor), output_index_(output_index), what_(what) {
  if (tensor_.defined()) version_ = tensor_.version();
  if (output_index >= 0) {
    tensor_.set_slot(nullptr);
  } else if (const auto& slot = tensor_.slot(); slot && slot->node && slot->node->recompute) {
    slot_ = slot;
    tensor_ = {};
  }
}

Saved::Saved(const Saved&) = default;
Saved::Saved(Saved&&) noexcept = default;
Saved& Saved::operator=(const Saved&) = default;
Saved& Saved::operator=(Saved&&) noexcept = default;
Saved::~Saved() = default;

// It takes the place of the first one, and so its version.
Tensor Saved::recomputed() const {
  INK_CHECK(slot_->node->recompute, "backward: the graph through ", slot_->node->name,
            ", whose output is computed again, was freed by an earlier walk; pass retain_graph to "
            "the first one, or run the forward again");
  Tensor x = slot_->node->recompute();
  x.storage()->version = slot_->version;
  x.set_slot(slot_);
  return x;
}

Tensor Saved::operator*() const {
  if (slot_) return recomputed();
  if (!tensor_.defined()) return tensor_;
  INK_CHECK(tensor_.version() == version_, Node::running ? Node::running->name : "backward", ": ",
            what_, ", ", tensor_.shape(), " ", tensor_.dtype(),
            ", was saved for backward at version ", version_,
            " and has been written in place since (now version ", tensor_.version(),
            "); write out of place (x = x + y) or clone() first");
  if (output_index_ < 0 || Node::running == nullptr) return tensor_;
  Tensor output = tensor_;
  output.set_slot(Node::running->outputs[static_cast<size_t>(output_index_)].lock());
  return output;
}

}  // namespace ink
