// Exercise 13: rotary positions
//
// The product of a query and a key does not depend on where they stand. Rotary embedding changes
// that: it turns each query and key by an angle that grows with its position. The product of two
// turned vectors depends on the difference of their angles. So a score depends on how far apart two
// positions are, and on nothing else about them.
//
// x is (..., T, d) with d even. Its rows stand at positions start, start + 1, ... The first half of
// a row's numbers and its second half make d/2 pairs (a, b) = (x[i], x[i + d/2]). Pair i of the row
// at position t is turned by the angle
//
//   angle = t / 10000^(2 i / d),         a' = a cos(angle) - b sin(angle)
//                                        b' = a sin(angle) + b cos(angle)
//
// so the first pair turns fast, the last one slowly. Return the turned rows, of the shape of x.
//
// The check looks at the numbers, at lengths, which a turn leaves as they are, and at scores of
// queries and keys that have moved together, which do not change.
//
// Useful: arange(n).to(f64), outer(positions, speeds) (T, d/2), pow(10000, x), sin, cos,
// narrow(x, -1, start, length), cat({a, b}, -1). Lesson 7 explains queries, keys and scores. Its
// model learns a table of positions instead.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Tensor rotate(const Tensor& x, int64_t start) {
  // >>> todo("rotate");
  const int64_t T = x.size(-2), d = x.size(-1);
  const Tensor speeds = pow(10000, arange(d / 2).to(f64) * (-2.0 / d));
  const Tensor angles = outer((arange(T) + start).to(f64), speeds);
  const Tensor a = narrow(x, -1, 0, d / 2), b = narrow(x, -1, d / 2, d / 2);
  return cat({a * cos(angles) - b * sin(angles), a * sin(angles) + b * cos(angles)}, -1);
  // <<<
}

INK_EXERCISE(rotary_exercise(rotate))
