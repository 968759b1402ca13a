// y = x exp(sin(3 x))
#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {

Exercise chain_rule_exercise(double (*derivative)(double)) {
  using std::cos, std::exp, std::sin;
  return {
      "01_chain_rule",
      "lesson 0",
      {"Which rule is for a product of two functions of x, and which for a function inside of "
       "another one? You need each of them.",
       "Write y = x e with e = exp(sin(3 x)). The product rule gives e + x e'.",
       "For e', multiply the derivatives from the outside to the inside: exp at sin(3 x), then "
       "cos(3 x), then 3. So y' = e + x e cos(3 x) 3."},
      {"autograd/loops/pointwise.h", "struct sin",
       "The library keeps the derivative df beside each function f, as here for sin, so that "
       "neither can be changed without the other. It never writes out a long derivative as you "
       "did: backward multiplies the small ones."},
      {{"derivative",
        {"dx"},
        answer(derivative),
        [](const Tensors& in) -> Tensors {
          const auto forward = [](const Tensors& x) { return x[0] * exp(sin(x[0] * 3)); };
          return {difference(forward, in, 0, scalar(1))};
        },
        {{"x = 0.7", {scalar(0.7)}},
         {"x = 0", {scalar(0)}},
         {"a negative x", {scalar(-1.3)}},
         {"a large x", {scalar(20)}}},
        {{answer([](double x) { return exp(sin(3 * x)) * (1 + x * cos(3 * x)); }),
          "The innermost function has a derivative, too: that of 3 x is 3."},
         {answer([](double x) { return x * exp(sin(3 * x)) * cos(3 * x) * 3; }),
          "A product has two terms: (a b)' = a' b + a b'. That of x' = 1 is missing."},
         {answer([](double x) { return exp(sin(3 * x)) * (1 - 3 * x * cos(3 * x)); }),
          "The derivative of sin is cos, without a minus sign. That of cos has one."},
         {answer([](double x) { return exp(sin(3 * x)) * (1 + 3 * x); }),
          "exp(u) has the derivative exp(u) u'. Here u = sin(3 x), and its cos(3 x) is missing."},
         {answer([](double x) { return exp(sin(3 * x)) * cos(3 * x) * 3; }),
          "A product's derivative is not the product of the derivatives: (a b)' = a' b + a "
          "b'."}}}}};
}

}  // namespace ink
