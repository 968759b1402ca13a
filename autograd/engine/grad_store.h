// GradStore: leaf gradients that are kept apart from the leaves.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"

namespace ink {

/// Leaf gradients of one or several walks, by tensor.
class GradStore {
 public:
  /// The gradient collected for a leaf; undefined if none.
  Tensor get(const Tensor& leaf) const;
  /// Adds the collected gradients to those of the leaves, and empties the store. Hooks of leaves
  /// see them now, not while the graph is walked.
  void add_to_leaves();
  /// The same with the sums of several stores' gradients, added in the stores' order.
  static void add_to_leaves(std::vector<GradStore>& stores);

 private:
  friend void backward(const Tensor& loss, GradStore& store);
  Tensor* cell(const std::shared_ptr<GradSlot>& slot);
  std::vector<std::pair<std::shared_ptr<GradSlot>, Tensor>> grads_;  // in order of arrival
  std::unordered_map<GradSlot*, size_t> index_;
};

}  // namespace ink
