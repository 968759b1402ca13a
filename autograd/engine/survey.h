// Survey: checks a graph before it is walked, so that a graph that cannot be walked is refused
// before anything has run or been freed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "autograd/engine/graph.h"

namespace ink {

/// Where a slot's gradient goes when it is complete; null if nobody wants it.
using Destination = std::function<Tensor*(const std::shared_ptr<GradSlot>&)>;

/// What a walk has to know about the nodes that it may visit. While the survey lives, it holds
/// them: another walk of these nodes is refused, unless both retain the graph, or the other one
/// retains it and runs inside this one (in a hook or a vjp).
class Survey {
 public:
  /// oldest: nodes up to this order lead to no gradient that is wanted.
  Survey(const Destination& destination, uint64_t oldest, bool retain_graph, const char* op)
      : destination_(destination), oldest_(oldest), retain_graph_(retain_graph), op_(op) {}
  ~Survey();
  Survey(const Survey&) = delete;
  Survey& operator=(const Survey&) = delete;

  /// Visits an output and all nodes that it was computed from. Throws if one of them leads to a
  /// wanted gradient, but was freed by an earlier walk or is held by another one.
  void add(const std::shared_ptr<GradSlot>& output);
  /// Does the gradient of this slot lead to one that is wanted?
  bool leads(const std::shared_ptr<GradSlot>& slot) const;
  /// The same for a node.
  bool leads(const Node* node) const;
  /// Did this leaf have hooks when add() met it?
  bool has_hooks(const GradSlot* leaf) const { return uses_.count(leaf) > 0; }
  /// One of the nodes that use a leaf has run. Was it the last? Only for leaves with hooks.
  bool was_last_use(const GradSlot* leaf);

 private:
  void claim(const std::shared_ptr<Node>& node);

  const Destination& destination_;
  const uint64_t oldest_;
  const bool retain_graph_;
  const char* const op_;                               // for errors
  std::unordered_map<const Node*, bool> leads_;        // for each node that add() met
  std::unordered_map<const GradSlot*, int64_t> uses_;  // edges to leaves with hooks, not walked yet
  std::vector<std::shared_ptr<Node>> claimed_;
};

}  // namespace ink
