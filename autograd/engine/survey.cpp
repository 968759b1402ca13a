#include "autograd/engine/survey.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace ink {

static std::mutex claims;  // guards Node::walks and Node::freeing_thread

Survey::~Survey() {
  const std::lock_guard lock(claims);
  for (const auto& node : claimed_) --node->walks;
}

void Survey::claim(const std::shared_ptr<Node>& node) {
  const void* const thread = &Node::running;
  const bool freeing = node->walks > 0 && node->freeing_thread != nullptr;
  // A hook or a vjp may walk the graph that is being walked, but must not free it.
  const bool allowed =
      node->walks == 0 || (retain_graph_ && (!freeing || node->freeing_thread == thread));
  INK_CHECK(allowed, op_, ": the graph through ", node->name,
            " is being walked already, by another thread or by the walk that this one is part of; "
            "give each a graph of its own, or pass retain_graph to all of them");
  INK_CHECK(!node->freed, op_, ": the graph through ", node->name,
            " was freed by an earlier walk; detach() what is kept of an earlier step, pass "
            "retain_graph to the first walk, or run the forward again");
  if (node->walks == 0) node->freeing_thread = retain_graph_ ? nullptr : thread;
  ++node->walks;
  claimed_.push_back(node);
}

// Depth first, without recursion: a node is decided after all nodes that it was computed from.
void Survey::add(const std::shared_ptr<GradSlot>& output) {
  const std::lock_guard lock(claims);
  std::vector<std::pair<std::shared_ptr<Node>, size_t>> path;  // nodes, each with its next input
  const auto enter = [&](const std::shared_ptr<Node>& node) {
    if (!node || node->order <= oldest_ || !leads_.try_emplace(node.get()).second) return;
    path.emplace_back(node, 0);
  };
  if (!output->node && output->hooks) uses_.try_emplace(output.get());
  enter(output->node);
  while (!path.empty()) {
    const auto& inputs = path.back().first->inputs;
    if (path.back().second < inputs.size()) {
      const auto& x = inputs[path.back().second++];
      if (x && !x->node && x->hooks) ++uses_[x.get()];
      if (x) enter(x->node);
    } else {
      const auto node = std::move(path.back().first);
      path.pop_back();
      if (!std::any_of(inputs.begin(), inputs.end(), [&](auto& x) { return x && leads(x); }))
        continue;
      claim(node);
      leads_[node.get()] = true;
    }
  }
}

bool Survey::leads(const Node* node) const {
  const auto found = leads_.find(node);
  return found != leads_.end() && found->second;
}
bool Survey::leads(const std::shared_ptr<GradSlot>& slot) const {
  return destination_(slot) != nullptr || leads(slot->node.get());
}

bool Survey::was_last_use(const GradSlot* leaf) {
  const auto found = uses_.find(leaf);
  return found != uses_.end() && --found->second == 0;
}

}  // namespace ink
