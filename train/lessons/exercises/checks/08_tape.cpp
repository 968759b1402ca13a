#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace tape_check {

using Backward = std::vector<double> (*)(const Graph&, int);

struct Example {
  std::string name;
  Graph graph;
  int loss;
};
Graph chain(int length) {
  Graph graph = {{}};
  for (int i = 1; i < length; ++i) graph.push_back({{i - 1}, {i % 2 == 0 ? 0.5 : 2.0}});
  return graph;
}
const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"the loss alone", {{}}, 0},
      {"one product", {{}, {}, {{0, 1}, {-3, 2}}}, 2},
      {"a leaf used twice by one number", {{}, {{0, 0}, {2, 5}}}, 1},
      {"a diamond", {{}, {{0}, {2}}, {{0}, {-3}}, {{1, 2}, {5, 7}}}, 3},
      {"a short way and a long way", {{}, {{0}, {2}}, {{1}, {3}}, {{1, 2}, {5, 7}}}, 3},
      {"numbers in no order", {{{2, 1}, {3, 5}}, {{3}, {7}}, {{1, 3}, {2, -1}}, {}}, 0},
      {"numbers that the loss does not use", {{}, {{0}, {4}}, {{1}, {9}}, {}}, 1},
      {"a number that the loss does not use, which uses others",
       {{}, {{0}, {4}}, {{1}, {9}}, {{1}, {5}}},
       2},
      {"a chain of 200,000", chain(200'000), 199'999}};
  return all;
}

// A case is the number of an example.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Example& example : examples())
    all.push_back({example.name, {tensor(std::ssize(all))}});
  return all;
}
Answer answer(Backward f) {
  return [f](const Tensors& in) -> Tensors {
    const auto& [name, graph, loss] = examples().at(in[0].item<int64_t>());
    const std::vector<double> grads = f(graph, loss);
    return {from_vector(grads, {std::ssize(grads)})};
  };
}

// Inputs before what is computed from them.
std::vector<int> inputs_first(const Graph& graph) {
  std::vector<int> order, state(graph.size()), to_do;
  for (int start = 0; start < static_cast<int>(graph.size()); ++start) {
    to_do.push_back(start);
    while (!to_do.empty()) {
      const int number = to_do.back();
      if (state[number]++ == 0) {
        for (const int input : graph[number].inputs)
          if (state[input] == 0) to_do.push_back(input);
        continue;
      }
      to_do.pop_back();
      if (state[number] == 2) order.push_back(number);
    }
  }
  return order;
}

// The same graph of the library's tensors, and the library's backward.
std::vector<double> by_the_engine(const Graph& graph, int loss) {
  Tensors numbers(graph.size());
  for (const int i : inputs_first(graph)) {
    Tensor x = scalar(0.5);
    x.requires_grad_();
    for (size_t k = 0; k < graph[i].inputs.size(); ++k) {
      const Tensor term = numbers[graph[i].inputs[k]] * graph[i].slopes[k];
      x = k == 0 ? term : x + term;
    }
    x.retain_grad();
    numbers[i] = x;
  }
  numbers[loss].backward();
  std::vector<double> grads;
  for (const Tensor& number : numbers)
    grads.push_back(number.grad().defined() ? number.grad().item() : 0);
  return grads;
}

// ---- mistakes

// Numbers from the loss on, each after all that use it.
std::vector<int> users_first(const Graph& graph) {
  std::vector<int> order = inputs_first(graph);
  return {order.rbegin(), order.rend()};
}

// Goes through `order`, and lets hand(grad of input, what it gets, slope) do what it does.
template <class Hand>
std::vector<double> walk(const Graph& graph, int loss, const std::vector<int>& order, Hand hand) {
  std::vector<double> grad(graph.size());
  grad[loss] = 1;
  for (const int i : order)
    for (size_t k = 0; k < graph[i].inputs.size(); ++k)
      hand(grad[graph[i].inputs[k]], grad[i], graph[i].slopes[k]);
  return grad;
}
void add(double& input, double grad, double slope) { input += grad * slope; }

std::vector<double> assigns(const Graph& graph, int loss) {
  return walk(graph, loss, users_first(graph), [](double& input, double grad, double slope) {
    if (grad != 0) input = grad * slope;
  });
}
std::vector<double> in_given_order(const Graph& graph, int loss) {
  std::vector<int> order;
  for (size_t i = graph.size(); i > 0; --i) order.push_back(static_cast<int>(i) - 1);
  return walk(graph, loss, order, add);
}
// From the loss on, the nearest numbers first, and each once.
std::vector<double> nearest_first(const Graph& graph, int loss) {
  std::vector<int> order = {loss};
  std::vector<bool> seen(graph.size());
  seen[loss] = true;
  for (size_t i = 0; i < order.size(); ++i)
    for (const int input : graph[order[i]].inputs) {
      if (seen[input]) continue;
      seen[input] = true;
      order.push_back(input);
    }
  return walk(graph, loss, order, add);
}
std::vector<double> leaves_only(const Graph& graph, int loss) {
  std::vector<double> grad = walk(graph, loss, users_first(graph), add);
  for (size_t i = 0; i < graph.size(); ++i)
    if (!graph[i].inputs.empty()) grad[i] = 0;
  return grad;
}
std::vector<double> no_slopes(const Graph& graph, int loss) {
  return walk(graph, loss, users_first(graph),
              [](double& input, double grad, double) { input += grad; });
}
std::vector<double> everything_begins_at_1(const Graph& graph, int) {
  std::vector<double> result(graph.size(), 1);
  for (const int i : users_first(graph))
    for (size_t k = 0; k < graph[i].inputs.size(); ++k)
      result[graph[i].inputs[k]] += result[i] * graph[i].slopes[k];
  return result;
}

// Hands gradients on from the loss, and goes on with an input when is_complete(input) says so.
template <class F>
std::vector<double> hand_on(const Graph& graph, int loss, F is_complete) {
  std::vector<double> grad(graph.size());
  grad[loss] = 1;
  std::vector<int> to_do = {loss};
  while (!to_do.empty()) {
    const int number = to_do.back();
    to_do.pop_back();
    for (size_t k = 0; k < graph[number].inputs.size(); ++k) {
      const int input = graph[number].inputs[k];
      grad[input] += grad[number] * graph[number].slopes[k];
      if (is_complete(input)) to_do.push_back(input);
    }
  }
  return grad;
}
std::vector<double> each_time(const Graph& graph, int loss) {
  return hand_on(graph, loss, [](int) { return true; });
}
std::vector<double> uses_by_all(const Graph& graph, int loss) {
  std::vector<int> uses(graph.size());
  for (const Number& number : graph)
    for (const int input : number.inputs) ++uses[input];
  return hand_on(graph, loss, [&](int input) { return --uses[input] == 0; });
}

}  // namespace tape_check

Exercise tape_exercise(tape_check::Backward backward) {
  using namespace tape_check;
  return {
      "08_tape",
      "lesson 0",
      {"When may a number hand on its gradient? When nothing can be added to it any more. How "
       "would you know?",
       "Count for each number how often it is used, by numbers that the loss depends on alone: "
       "uses[input]++ for every input of every such number, each number once.",
       "Then take numbers from a list that begins with the loss. For each input: add grad times "
       "slope, count its uses down, and put it on the list when none is left."},
      {"autograd/engine/backward.cpp", "void visit(",
       "The library counts nothing: what waits is in a map by the nodes' order, because later "
       "nodes use earlier ones. visit hands on the gradients of one node. The walk owns the "
       "map, so an exception leaves nothing behind."},
      {{"tape_backward",
        {"grad"},
        answer(backward),
        answer(by_the_engine),
        cases(),
        {{answer(assigns),
          "A number that is used twice keeps only one of its gradients here. Add them: +=."},
         {answer(in_given_order),
          "This trusts the order in which numbers stand in the graph. They stand in any order."},
         {answer(nearest_first),
          "A number hands on its gradient here before all numbers that use it have reported."},
         {answer(each_time),
          "A number hands on all it has got each time something arrives. It may do so once, when "
          "its last use has reported."},
         {answer(uses_by_all),
          "Uses by numbers that the loss does not depend on are counted, too, and never report. "
          "Count from the loss on."},
         {answer(leaves_only), "All numbers have gradients, those between loss and leaves, too."},
         {answer(no_slopes), "The slopes are missing: an input gets the gradient times its slope."},
         {answer(everything_begins_at_1),
          "Only the loss begins with the gradient 1. All others begin with 0."}}}}};
}

}  // namespace ink
