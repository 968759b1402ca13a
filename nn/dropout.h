// Dropout: in training, zeroes each element with probability p.
#pragma once

#include <string>

#include "autograd/fused_ops.h"
#include "nn/module.h"

namespace ink {

/// y = x * mask / (1 - p) in training, x in evaluation. Srivastava et al. 2014.
struct Dropout : Module {
  double p;

  explicit Dropout(NumberOf<double> probability = 0.5) : p(probability) {
    INK_CHECK(p >= 0 && p <= 1, "dropout: expected a probability between 0 and 1, got ", p);
  }

  Tensor operator()(const Tensor& x) const { return dropout(x, p, training); }
  /// The probability with which it zeroes elements now.
  double rate() const { return training ? p : 0; }

  std::string extra_repr() const override { return detail::text("p=", p); }
};

}  // namespace ink
