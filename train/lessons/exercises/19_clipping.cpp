// Exercise 19: clipping gradients
//
// One bad batch can have gradients a thousand times as large as all others, and undo in a step what
// was learned in a thousand. So gradients are made smaller before the step, where they are too
// large, and their direction stays:
//
//   norm   = sqrt(sum of the squares of all elements of all gradients)
//   factor = min(1, max_norm / (norm + 1e-6))
//   g      = g factor                                 for every gradient g
//
// There is one norm for all parameters together, as if their gradients were one long vector: if
// each had its own, the direction of the step would change. 1e-6 keeps the factor finite where all
// gradients are 0.
//
// Tensors is std::vector<Tensor>. Return {norm, the gradients in their order}, as new tensors; the
// norm is what it was before clipping, a scalar.
//
// Useful: sum(square(g)), sqrt(x), x.item(), std::min, tensor(x, f64). Lesson 5 clips, and lesson 9
// shows what the norm tells.
#include "train/lessons/exercises/exercise.h"

#include <algorithm>
#include <cmath>

using namespace ink;

Tensors clipped(const Tensors& gradients, double max_norm) {
  // >>> todo("clipped");
  double squares = 0;
  for (const Tensor& g : gradients) squares += sum(square(g)).item();
  const double norm = std::sqrt(squares), factor = std::min(1.0, max_norm / (norm + 1e-6));
  Tensors result = {tensor(norm, f64)};
  for (const Tensor& g : gradients) result.push_back(g * factor);
  return result;
  // <<<
}

INK_EXERCISE(clipping_exercise(clipped))
