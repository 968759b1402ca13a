// GradStore: leaf gradients that are kept apart from the leaves.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"

namespace ink {

/// The leaf gradients of one or several walks.
class GradStore {
 public:
  /// The gradient collected for a leaf; undefined if none.
  Tensor get(const Tensor& leaf) const;
  /// Adds the collected gradients to those of the leaves, and empties the store. The leaves' hooks
  /// run now, and not during the walk.
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
