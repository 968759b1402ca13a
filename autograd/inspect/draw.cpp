#include "autograd/inspect/draw.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <map>
#include <unordered_map>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/engine/graph.h"

namespace ink {
namespace {

// The nodes and leaves of a graph, the newest node first. They are found without recursion, because
// graphs may be deep.
struct Parts {
  std::vector<const Node*> nodes;
  std::vector<const GradSlot*> leaves;
  std::unordered_map<const void*, int> uses;  // of nodes and leaves, as inputs

  explicit Parts(const GradSlot* root) {
    std::map<uint64_t, const Node*, std::greater<>> pending;
    const auto visit = [&](const GradSlot* slot) {
      const void* source = slot->node ? static_cast<const void*>(slot->node.get()) : slot;
      if (++uses[source] > 1) return;
      if (slot->node) {
        pending.emplace(slot->node->order, slot->node.get());
      } else {
        leaves.push_back(slot);
      }
    };
    if (root != nullptr) visit(root);
    while (!pending.empty()) {
      nodes.push_back(pending.begin()->second);
      pending.erase(pending.begin());
      for (const auto& input : nodes.back()->inputs) {
        if (input) visit(input.get());
      }
    }
  }
};

std::string name_of_leaf(const GradSlot* slot, const NamedTensors& names) {
  for (const auto& [name, leaf] : names) {
    if (leaf.slot().get() == slot) return name;
  }
  return "leaf";
}

}  // namespace

std::string print_graph(const Tensor& y, const NamedTensors& names) {
  const Parts parts(y.slot().get());
  constexpr size_t kDeepest = 40;  // levels of indentation; deeper nodes are not indented further
  struct Line {
    const GradSlot* slot;
    size_t depth;
  };
  std::vector<Line> stack;
  if (y.slot()) stack.push_back({y.slot().get(), 0});
  std::unordered_map<const Node*, int> numbers;
  TextStream text;
  while (!stack.empty()) {
    const auto [slot, depth] = stack.back();
    stack.pop_back();
    text << std::string(2 * std::min(depth, kDeepest), ' ');
    const Node* node = slot->node.get();
    if (node == nullptr) {
      text << name_of_leaf(slot, names) << ' ' << slot->shape << '\n';
    } else if (const auto seen = numbers.find(node); seen != numbers.end()) {
      text << '[' << seen->second << "] " << node->name << ", above\n";
    } else {
      if (parts.uses.at(node) > 1) {
        const int number = static_cast<int>(numbers.size()) + 1;
        numbers[node] = number;
        text << '[' << number << "] ";
      }
      text << node->name << ' ' << slot->shape << '\n';
      for (size_t i = node->inputs.size(); i-- > 0;) {
        if (node->inputs[i]) stack.push_back({node->inputs[i].get(), depth + 1});
      }
    }
  }
  return text.str();
}

std::string to_dot(const Tensor& y, const NamedTensors& names) {
  const Parts parts(y.slot().get());
  std::unordered_map<const void*, size_t> ids;
  TextStream text;
  const auto declare = [&](const void* part, const std::string& label, const char* style) {
    text << "  n" << ids.size() << " [label=" << std::quoted(label) << style << "];\n";
    ids.emplace(part, ids.size());
  };
  const auto edge = [&](const GradSlot* slot, const Node* to) {
    const void* from = slot->node ? static_cast<const void*>(slot->node.get()) : slot;
    text << "  n" << ids.at(from) << " -> ";
    (to ? text << 'n' << ids.at(to) : text << 'y') << " [label=\"" << slot->shape << "\"];\n";
  };
  text << "digraph {\n  rankdir=BT;\n  y [shape=plaintext];\n";
  for (const Node* node : parts.nodes) declare(node, node->name, "");
  for (const GradSlot* leaf : parts.leaves) declare(leaf, name_of_leaf(leaf, names), ", shape=box");
  if (y.slot()) edge(y.slot().get(), nullptr);
  for (const Node* node : parts.nodes) {
    for (const auto& input : node->inputs) {
      if (input) edge(input.get(), node);
    }
  }
  text << "}\n";
  return text.str();
}

}  // namespace ink
