// Exercise 26: checkpointing: less memory for more time
//
// A chain has n layers: x -> layer 0 -> layer 1 -> ... -> y. Backward goes through them from the
// last to the first, and each needs the input that it had. Keeping all n of them takes the memory
// of n activations. Keeping none means to run from x again for each layer: n (n - 1) / 2 layers.
//
// In between, keep every k-th input on the way forward: those of layers 0, k, 2k, ... (the
// checkpoints). Backward takes one section after another, the last one first: it runs the section
// forward once more from its checkpoint, this time keeping all inputs within it, and then backward
// through it. No layer runs more than twice, and only n/k checkpoints and one section are ever
// held.
//
//   struct Chain {
//     int layers;
//     Activation run(int layer, const Activation& input) const;
//     double backward(int layer, const Activation& input, double dy) const;      // gives dx
//   };
//
// An Activation holds memory as long as a copy of it exists: the check counts how many are held at
// once, and how often a layer runs. Keep them in vectors, and let go of what you do not need.
//
// Return the gradient of y with respect to x. every is k, 1 or more, and need not divide n. Lesson
// 8 measures what it saves.
#include "train/lessons/exercises/exercise.h"

#include <algorithm>

using namespace ink;

double checkpointed_gradient(const Chain& chain, const Activation& x, int every) {
  // >>> todo("checkpointed_gradient");
  std::vector<Activation> checkpoints;
  Activation now = x;
  for (int i = 0; i < chain.layers; ++i) {
    if (i % every == 0) checkpoints.push_back(now);
    if (i + 1 < chain.layers) now = chain.run(i, now);
  }
  double dy = 1;
  for (int begin = (chain.layers - 1) / every * every; begin >= 0; begin -= every) {
    const int end = std::min(begin + every, chain.layers);
    std::vector<Activation> inputs = {checkpoints.back()};
    checkpoints.pop_back();
    for (int i = begin; i + 1 < end; ++i) inputs.push_back(chain.run(i, inputs.back()));
    for (int i = end - 1; i >= begin; --i) {
      dy = chain.backward(i, inputs.back(), dy);
      inputs.pop_back();
    }
  }
  return dy;
  // <<<
}

INK_EXERCISE(checkpointing_exercise(checkpointed_gradient))
