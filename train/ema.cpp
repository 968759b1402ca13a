#include "train/ema.h"

#include "autograd/base/check.h"
#include "autograd/basic_ops.h"
#include "autograd/kernels/optimizer.h"

namespace ink {

// A step of SGD with the rate 1 - decay, a weight decay of 1, and the negative weight for its
// gradient: a - (1 - decay) (a - w).
WeightAverage::WeightAverage(const std::vector<Tensor>& averages,
                             const std::vector<Tensor>& weights, double decay)
    : averages_(averages), weights_(weights) {
  INK_CHECK(decay >= 0 && decay < 1, "ema: expected a decay in [0, 1), got ", decay);
  INK_CHECK(averages.size() == weights.size() && !weights.empty(), "ema: expected an average of ",
            "each of ", weights.size(), " weights, got ", averages.size());
  const Device device = weights[0].device();
  const int64_t n = std::ssize(weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    INK_CHECK(
        averages[i].shape() == weights[i].shape() && averages[i].dtype() == weights[i].dtype(),
        "ema: expected an average of weight ", i, ", ", weights[i].shape(), " ", weights[i].dtype(),
        ", got ", averages[i].shape(), " ", averages[i].dtype());
    INK_CHECK(weights[i].is_contiguous() && averages[i].is_contiguous(), "ema: weight ", i, ", ",
              weights[i].shape(), ", or its average is a strided view; take a contiguous() copy");
    lists_.values.push_back(averages[i]);
    lists_.grads.push_back(weights[i]);
    lists_.rounded.emplace_back();
  }
  lists_.counts = zeros({n}, {i64, device});
  lists_.lr_scale = ones({n}, {f64, device});
  lists_.decay = ones({n}, {f64, device});
  step_ = {full({}, 1 - decay, {f64, device}), zeros({}, {f64, device}),
           full({}, -1.0, {f64, device}), Array(), zeros({2}, {i64, device})};
}

void WeightAverage::update(const Tensor& finite) {
  for (size_t i = 0; i < weights_.size(); ++i)
    INK_CHECK(averages_[i].storage() == lists_.values[i].storage() &&
                  weights_[i].storage() == lists_.grads[i].storage(),
              "ema: weight ", i,
              " or its average has other memory than when the average was made; "
              "convert a model before that");
  Arrays none;
  step_.finite = finite;
  kernel::sgd(lists_, none, step_, 0, false);
}

}  // namespace ink
