// Exercise 8: the tape, and backward through it
//
// A graph is a list of numbers. Each knows which numbers it was computed from, and with each of
// them its slope, d this / d input:
//
//   struct Number { std::vector<int> inputs; std::vector<double> slopes; };
//   using Graph = std::vector<Number>;                 // numbers are named by their places in it
//
// A number without inputs is a leaf. Numbers stand in the graph in no particular order.
//
// Write backward: return d loss / d number for every number of the graph, 0 for those that the loss
// does not depend on. The gradient of the loss itself is 1. A number hands each input its own
// gradient times the slope, and an input adds up what it gets, because it may be used several
// times.
//
// A number may hand on its gradient only when it is complete, so after all numbers that use it.
// Hence two passes:
//   1. Starting from the loss, count for every number how often it is used.
//   2. Starting from the loss again, hand gradients on. A number whose last use has reported is
//      complete, and its turn comes.
// Keep what is left to do in a std::vector, and do not call a function for each input: one check is
// a chain of 200,000 numbers, and so deep a recursion runs out of stack.
//
// Lesson 0 explains all of this, with a recursion.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

std::vector<double> tape_backward(const Graph& graph, int loss) {
  // >>> todo("tape_backward");
  std::vector<int> uses(graph.size());
  std::vector<int> to_do = {loss};
  while (!to_do.empty()) {
    const int number = to_do.back();
    to_do.pop_back();
    for (const int input : graph[number].inputs)
      if (uses[input]++ == 0) to_do.push_back(input);
  }
  std::vector<double> grad(graph.size());
  grad[loss] = 1;
  to_do = {loss};
  while (!to_do.empty()) {
    const int number = to_do.back();
    to_do.pop_back();
    for (size_t i = 0; i < graph[number].inputs.size(); ++i) {
      const int input = graph[number].inputs[i];
      grad[input] += grad[number] * graph[number].slopes[i];
      if (--uses[input] == 0) to_do.push_back(input);
    }
  }
  return grad;
  // <<<
}

INK_EXERCISE(tape_exercise(tape_backward))
