// An average of weights, beside the weights that are trained (Polyak and Juditsky 1992).
#pragma once

#include <vector>

#include "autograd/loops/optimizer.h"
#include "autograd/tensor.h"

namespace ink {

/// After each step that was not skipped: average = decay average + (1 - decay) weight. It begins as
/// `averages` are, and writes them in one pass, which reads nothing back.
class WeightAverage {
 public:
  /// Both lists have the same shapes and dtypes, in the same order. Throws unless decay lies in
  /// [0, 1), and on strided memory.
  WeightAverage(const std::vector<Tensor>& averages, const std::vector<Tensor>& weights,
                double decay);
  /// finite: as in OptimizerStatus. Throws if a tensor of the lists has other memory by now.
  void update(const Tensor& finite);

 private:
  std::vector<Tensor> averages_, weights_;
  ParameterLists lists_;
  OptimizerStep step_;
};

}  // namespace ink
