#include "nn/init.h"

#include <cmath>

namespace ink::init {

// The order of the operations is PyTorch's, so that the bounds are the same to the last bit.

void kaiming_uniform_(Tensor weight, double a) {
  INK_CHECK(weight.dim() == 2, "kaiming_uniform_: expected a weight (out, in), got ",
            weight.shape());
  if (weight.numel() == 0) return;
  const double gain = std::sqrt(2 / (1 + a * a));
  const double bound = std::sqrt(3.0) * (gain / std::sqrt(static_cast<double>(weight.size(1))));
  init::uniform_(weight, -bound, bound);
}

void xavier_uniform_(Tensor weight, double gain) {
  INK_CHECK(weight.dim() == 2, "xavier_uniform_: expected a weight (out, in), got ",
            weight.shape());
  const auto fans = static_cast<double>(weight.size(0) + weight.size(1));
  const double bound = std::sqrt(3.0) * (gain * std::sqrt(2.0 / fans));
  init::uniform_(weight, -bound, bound);
}

}  // namespace ink::init
