// watch: statistics of a model's activations, gradients and weights, by name. They show what a loss
// does not: layers that saturate, gradients that vanish, weights that do not learn.
//
//   std::cout << watch(model, [&] { return model.loss(x, y); });
//
//   activation                     shape           mean       std  saturated  grad std
//   wte embedding                  (6, 160, 128)   0.001    0.141             2.1e-05
//   ...
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "nn/module.h"
#include "train/flow/flow.h"

namespace ink {

/// An output of an op, and the gradient of the loss there. NaN where it is not known.
struct ActivationStats {
  std::string name;  // the op's module; FlowOp::title() if the op reads no parameters
  std::string op;
  Shape shape;
  double mean = 0, std = 0;
  /// The share of elements at which a nonlinearity (tanh, sigmoid, relu, gelu, ...) is so flat,
  /// with a slope below 0.03, that hardly any gradient passes. NaN for other ops.
  double saturated = 0;
  double grad_std = 0;
};

/// Some or all of a parameter: a head of attention is a part of four.
struct ParameterStats {
  std::string name;  // "h.0.attn.c_attn.weight" or "h.0.attn head 2"
  int64_t count = 0;
  double norm = 0, grad_norm = 0;  // grad_norm: 0 if the loss does not depend on it
};

struct ModelStats {
  double loss = 0;
  std::vector<ActivationStats> activations;  // in the order in which they were computed
  std::vector<ParameterStats> parameters;
};

/// Runs loss() and its backward once, and measures. Nothing changes: the gradients are not added to
/// the parameters' own, and dropout draws what the caller's next loss() would. loss() returns a
/// scalar. Norms of large parts are estimates (ParameterParts).
ModelStats watch(const Module& model, const std::function<Tensor()>& loss);

/// Two tables.
std::ostream& operator<<(std::ostream& out, const ModelStats& stats);

}  // namespace ink
