#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace rotary_check {

using F = Tensor (*)(const Tensor&, int64_t);

// Lengths of rows, and the scores of queries x against the same keys, all 7 positions later.
Tensors properties(const Tensor& turned, const Tensor& later) {
  return {turned, sqrt(sum(square(turned), {-1})), matmul(later, later.transpose(-2, -1))};
}

// inputs: x, start
Answer turns(F f) {
  return [f](const Tensors& in) -> Tensors {
    const int64_t start = static_cast<int64_t>(in[1].item());
    return properties(f(in[0], start), f(in[0], start + 7));
  };
}

// The definition, number by number.
Tensor right(const Tensor& x, int64_t start) {
  const int64_t T = x.size(-2), d = x.size(-1), half = d / 2;
  const std::vector<double> values = x.tolist();
  std::vector<double> y(values.size());
  for (int64_t row = 0; row < x.numel() / d; ++row)
    for (int64_t i = 0; i < half; ++i) {
      const double position = static_cast<double>(start + row % T);
      const double angle = position * std::pow(10000, -2.0 * i / static_cast<double>(d));
      const double a = values[row * d + i], b = values[row * d + i + half];
      y[row * d + i] = a * std::cos(angle) - b * std::sin(angle);
      y[row * d + i + half] = a * std::sin(angle) + b * std::cos(angle);
    }
  return from_vector(y, x.shape());
}
Tensors expected(const Tensors& in) {
  const Tensor turned = right(in[0], static_cast<int64_t>(in[1].item()));
  return {turned, sqrt(sum(square(in[0]), {-1})), matmul(turned, turned.transpose(-2, -1))};
}

// ---- mistakes

Tensor angles(const Tensor& x, int64_t start, double power = -2) {
  const int64_t T = x.size(-2), d = x.size(-1);
  const Tensor speeds = pow(10000, arange(d / 2).to(f64) * (power / static_cast<double>(d)));
  return outer((arange(T) + start).to(f64), speeds);
}
Tensor turned_by(const Tensor& x, const Tensor& angle) {
  const int64_t half = x.size(-1) / 2;
  const Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half);
  return cat({a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)}, -1);
}
Tensor no_minus(const Tensor& x, int64_t start) {
  const int64_t half = x.size(-1) / 2;
  const Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half), t = angles(x, start);
  return cat({a * cos(t) + b * sin(t), a * sin(t) + b * cos(t)}, -1);
}
Tensor neighbours(const Tensor& x, int64_t start) {
  Shape pairs = x.shape();
  pairs[-1] /= 2;
  pairs.push_back(2);
  const Tensor a = x.view(pairs).select(-1, 0), b = x.view(pairs).select(-1, 1);
  const Tensor t = angles(x, start);
  return stack({a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)}, -1).reshape(x.shape());
}

Case of(const std::string& name, const Tensor& x, double start = 0) {
  return {name, {x, scalar(start)}};
}

}  // namespace rotary_check

Exercise rotary_exercise(rotary_check::F rotate) {
  using namespace rotary_check;
  return {
      "13_rotary",
      "lesson 11",
      {"Two numbers a and b are a point in the plane. How does a rotation by an angle change "
       "it, and which angle does position t have?",
       "speeds = pow(10000, -2 i / d) for i in 0 .. d/2 - 1, and angles = outer(positions, "
       "speeds), (T, d/2).",
       "a and b are the two halves of x, narrow(x, -1, 0, d/2) and narrow(x, -1, d/2, d/2). cat "
       "puts a cos - b sin and a sin + b cos side by side."},
      {"autograd/ops/rotary.cpp", "Tensor rotary(",
       "Cosines and sines come from a table that the model computes once (nn/rotary_embedding.h), "
       "in f64 because angles grow large. Its gradient is the same op, turned the other way."},
      {{"rotate",
        {"turned", "length", "score"},
        turns(rotate),
        expected,
        {of("four positions", noise(1, {4, 6})), of("a single pair", noise(2, {3, 2})),
         of("heads and batches", noise(3, {2, 2, 3, 4})),
         of("it starts at position 5", noise(4, {3, 4}), 5),
         of("a single row, far away", noise(5, {1, 4}), 1000)},
        {{turns([](const Tensor& x, int64_t start) { return turned_by(x, -angles(x, start)); }),
          "This turns the other way: a' = a cos - b sin, b' = a sin + b cos."},
         {turns([](const Tensor& x, int64_t) { return turned_by(x, angles(x, 0)); }),
          "`start` is ignored: rows stand at start, start + 1, ..."},
         {turns([](const Tensor& x, int64_t start) { return turned_by(x, angles(x, start + 1)); }),
          "The first row stands at `start`, not at start + 1."},
         {turns([](const Tensor& x, int64_t start) { return turned_by(x, angles(x, start, 0)); }),
          "All pairs turn at one speed. Pair i turns by t / 10000^(2 i / d)."},
         {turns([](const Tensor& x, int64_t start) { return turned_by(x, angles(x, start, -1)); }),
          "The exponent is 2 i / d. Here the 2 is missing."},
         {turns(no_minus),
          "A sign is wrong, so this is no rotation: lengths change. a' = a cos - b sin."},
         {turns(neighbours),
          "This pairs neighbours, x[2i] with x[2i + 1]. Here pairs are x[i] with x[i + d/2]."}}}}};
}

}  // namespace ink
