// What a write in place may do to a graph. The ops themselves are in ops/.
#include "autograd/engine/graph.h"

namespace ink {

void detail::check_in_place(const char* op, const Tensor& x, bool operands_require_grad) {
  if (!grad_enabled()) return;
  const bool tracked = x.requires_grad();
  INK_CHECK(!(tracked && x.is_leaf()), op, ": a leaf that requires grad, ", x.shape(),
            ", cannot be written in place while a graph is recorded; do it under NoGrad, or on "
            "x.detach()");
  INK_CHECK(!(x.is_view() && (tracked || operands_require_grad)), op,
            ": writing in place through a view, ", x.shape(),
            ", is not recorded; write out of place (x = x + y), or under NoGrad");
  INK_CHECK(tracked || !operands_require_grad || x.storage().use_count() == 1, op,
            ": other tensors share the memory of ", x.shape(),
            " and would miss its gradient; clone() it first, or write out of place (x = x + y)");
}

void detail::rebind(Tensor& x, const Tensor& result) {
  x.set_slot(result.slot());
  if (x.slot()) x.slot()->version = x.version();
}

}  // namespace ink
