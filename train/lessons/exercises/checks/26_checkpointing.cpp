#include <algorithm>
#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {

// What a run of a chain has cost so far.
struct ChainCost {
  int64_t held = 0, most_held = 0, runs = 0;
  int next = -1;  // the layer whose backward is next; -1: the last
};

Activation::Activation(double value, ChainCost& cost)
    : value_(new double(value), [&cost](const double* x) {
        --cost.held;
        delete x;
      }) {
  cost.most_held = std::max(cost.most_held, ++cost.held);
}

// Layer i is x + sin(1 + i / 2 + x) / 10.
Activation Chain::run(int layer, const Activation& input) const {
  INK_CHECK(layer >= 0 && layer < layers, "there is no layer ", layer);
  ++cost->runs;
  return {input.value() + std::sin(1 + layer / 2.0 + input.value()) / 10, *cost};
}
double Chain::backward(int layer, const Activation& input, double dy) const {
  INK_CHECK(layer >= 0 && layer < layers, "there is no layer ", layer);
  INK_CHECK(layer + 1 == layers || layer == cost->next, "backward of layer ", layer,
            " before that of layer ", layer + 1, ", which gives its dy");
  cost->next = layer - 1;
  return dy * (1 + std::cos(1 + layer / 2.0 + input.value()) / 10);
}

namespace checkpointing_check {

using F = double (*)(const Chain&, const Activation&, int);

// inputs: x, layers, every. outputs: dx, and by how many too many layers ran and activations were
// held; an answer may keep y, too, and a few that it is about to let go
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors {
    const int64_t n = in[1].item<int64_t>(), every = in[2].item<int64_t>();
    const int64_t sections = (n + every - 1) / every;
    ChainCost cost;
    const Chain chain{static_cast<int>(n), &cost};
    const double dx = f(chain, Activation(in[0].item(), cost), static_cast<int>(every));
    const auto beyond = [](int64_t x, int64_t limit) {
      return scalar(static_cast<double>(std::max<int64_t>(0, x - limit)));
    };
    return {scalar(dx), beyond(cost.runs, 2 * n), beyond(cost.most_held, sections + every + 4)};
  };
}

Tensors expected(const Tensors& in) {
  const int64_t n = in[1].item<int64_t>();
  const auto forward = [n](const Tensors& x) {
    double y = x[0].item();
    for (int64_t i = 0; i < n; ++i) y += std::sin(1 + static_cast<double>(i) / 2.0 + y) / 10;
    return scalar(y);
  };
  return {difference(forward, in, 0, scalar(1)), scalar(0), scalar(0)};
}

// ---- mistakes

double keeps_all(const Chain& chain, const Activation& x, int) {
  std::vector<Activation> inputs = {x};
  for (int i = 0; i + 1 < chain.layers; ++i) inputs.push_back(chain.run(i, inputs.back()));
  double dy = 1;
  for (int i = chain.layers - 1; i >= 0; --i)
    dy = chain.backward(i, inputs[static_cast<size_t>(i)], dy);
  return dy;
}
std::vector<Activation> checkpoints_of(const Chain& chain, const Activation& x, int every) {
  std::vector<Activation> result;
  Activation now = x;
  for (int i = 0; i < chain.layers; ++i) {
    if (i % every == 0) result.push_back(now);
    if (i + 1 < chain.layers) now = chain.run(i, now);
  }
  return result;
}
// Runs to each layer's input from `first`, a layer whose input is given.
double from_each(const Chain& chain, int every, const std::vector<Activation>& checkpoints,
                 bool from_x) {
  double dy = 1;
  for (int i = chain.layers - 1; i >= 0; --i) {
    const int first = from_x ? 0 : i / every * every;
    Activation input = checkpoints[static_cast<size_t>(first / every)];
    for (int k = first; k < i; ++k) input = chain.run(k, input);
    dy = chain.backward(i, input, dy);
  }
  return dy;
}
double from_x(const Chain& chain, const Activation& x, int every) {
  return from_each(chain, every, checkpoints_of(chain, x, every), true);
}
double from_the_checkpoint(const Chain& chain, const Activation& x, int every) {
  return from_each(chain, every, checkpoints_of(chain, x, every), false);
}
// Section by section; how: what goes wrong.
enum class Fault { outputs, drops_the_rest, forwards };
template <Fault fault>
double by_sections(const Chain& chain, const Activation& x, int every) {
  const std::vector<Activation> checkpoints = checkpoints_of(chain, x, every);
  const int sections = static_cast<int>(checkpoints.size());
  double dy = 1;
  for (int k = 0; k < sections; ++k) {
    const int section = fault == Fault::forwards ? k : sections - 1 - k, begin = section * every,
              end = std::min(begin + every, chain.layers);
    if (fault == Fault::drops_the_rest && end - begin < every) continue;
    std::vector<Activation> inputs = {checkpoints[static_cast<size_t>(section)]};
    const int last = fault == Fault::outputs ? end : end - 1;
    for (int i = begin; i < last; ++i) inputs.push_back(chain.run(i, inputs.back()));
    for (int i = end - 1; i >= begin; --i)
      dy = chain.backward(i, inputs[static_cast<size_t>(i - begin + (last == end ? 1 : 0))], dy);
  }
  return dy;
}

Case of(const std::string& name, double x, int64_t layers, int64_t every) {
  return {name, {scalar(x), tensor(layers), tensor(every)}};
}

}  // namespace checkpointing_check

Exercise checkpointing_exercise(checkpointing_check::F checkpointed_gradient) {
  using namespace checkpointing_check;
  return {
      "26_checkpointing",
      "lesson 8",
      {"Two parts: a way forward that keeps a few inputs, and a way back that makes the others "
       "again, when they are needed and not before.",
       "Forward: push the input of layer i to the checkpoints where i % every == 0. Back: the "
       "sections begin at (layers - 1) / every * every, and then every `every` before.",
       "For a section [begin, end): inputs = {its checkpoint}, then run(i, inputs.back()) for "
       "begin <= i < end - 1. Then backward(i, inputs.back(), dy) and inputs.pop_back(), for i "
       "from end - 1 down to begin. Sections of about sqrt(n) layers take the least."},
      {"autograd/engine/checkpoint.cpp", "Tensor detail::checkpoint_of(",
       "A section is any function, and one node of the graph that holds its inputs alone. When "
       "backward gets there, the function runs again and the walk goes on inside of it. It also "
       "restores the random position, so that dropout drops the same elements the second time."},
      {{"checkpointed_gradient",
        {"dx", "layers run beyond 2 n", "activations held beyond n/k + k"},
        answer(checkpointed_gradient),
        expected,
        {of("6 layers, every 2", 0.3, 6, 2), of("36 layers, every 6", 0.1, 36, 6),
         of("a last section that is shorter", -0.2, 7, 3), of("every layer", 0.4, 3, 1),
         of("one section for all", 0.2, 3, 5), of("a single layer", 0.5, 1, 1),
         of("100 layers, every 10", -0.4, 100, 10)},
        {{answer(keeps_all),
          "In the end all inputs are held, as without checkpoints. Keep those, and one section."},
         {answer(from_x),
          "Each layer's input is made from x again: the time grows with the square of n."},
         {answer(from_the_checkpoint),
          "A section runs again for each of its layers. Run it once, and keep its inputs."},
         {answer(by_sections<Fault::outputs>),
          "A layer's backward is given its output. It needs the input that the layer had."},
         {answer(by_sections<Fault::drops_the_rest>),
          "The last section is left out where it is shorter than the others."},
         {answer(by_sections<Fault::forwards>),
          "Sections go from the first to the last. The gradient comes from the end."}}}}};
}

}  // namespace ink
