// Initial values, as in torch.nn.init: in place, outside any graph, from the default generator.
#pragma once

#include "autograd/base/context.h"
#include "autograd/basic_ops.h"
#include "autograd/random/generator.h"
#include "autograd/tensor.h"

namespace ink::init {

/// While it lives, uniform_ and normal_ leave what requires grad as it is and draw nothing: for a
/// model whose parameters are loaded as soon as it is made. As torch.nn.utils.skip_init.
struct Skip : FlagGuard {
  [[nodiscard]] Skip() : FlagGuard(&Context::skip_init, true) {}
};
inline bool skips(const Tensor& x) { return context().skip_init && x.requires_grad(); }

inline void zeros_(Tensor x) {
  const NoGrad no_grad;
  x.zero_();
}

inline void ones_(Tensor x) {
  const NoGrad no_grad;
  x.fill_(1);
}

/// Uniform in [from, to).
inline void uniform_(Tensor x, double from, double to) {
  if (skips(x)) return;
  const NoGrad no_grad;
  ink::uniform_(x, from, to);
}

inline void normal_(Tensor x, double mean, double std) {
  if (skips(x)) return;
  const NoGrad no_grad;
  ink::normal_(x, mean, std);
}

/// Uniform in +-sqrt(3) gain / sqrt(fan_in), gain = sqrt(2 / (1 + a^2)), for a weight (out, in).
/// Linear uses a = sqrt(5), which gives +-1 / sqrt(fan_in). He et al. 2015, section 2.2.
void kaiming_uniform_(Tensor weight, double a);

/// Uniform in +-gain sqrt(6 / (in + out)). Glorot and Bengio 2010, eq. 16.
void xavier_uniform_(Tensor weight, double gain = 1);

}  // namespace ink::init
