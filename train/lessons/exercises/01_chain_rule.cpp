// Exercise 1: the chain rule, by hand
//
// Every gradient in this library comes from one rule. Where y = f(u) and u = g(x),
//
//   dy/dx = f'(u) g'(x)
//
// so from the outside to the inside, the derivatives are multiplied, each at the value that its
// function was given. A product has a rule of its own: (a b)' = a' b + a b'.
//
// Write the derivative with respect to x of
//
//   y = x exp(sin(3 x))
//
// What you need: exp' = exp, sin' = cos. Count the functions: there are three nested ones, and a
// product. Lesson 0 explains the chain rule, lesson 2 how the check measures a derivative.
#include "train/lessons/exercises/exercise.h"

#include <cmath>

using namespace ink;

double derivative(double x) {
  // >>> todo("derivative");
  const double e = std::exp(std::sin(3 * x));
  return e + x * e * std::cos(3 * x) * 3;
  // <<<
}

INK_EXERCISE(chain_rule_exercise(derivative))
