// Layer and root-mean-square normalisation: the twin of autograd/ops/layer_norm.cpp.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
// add_norm: s = x + dropout(branch), y = layer_norm(s) or rms_norm(s)
#include "cuda/norm.cuh"

namespace ink::cuda {

void layer_norm(Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p) {
  const auto run = mean.defined() ? norm<true, false> : norm<false, false>;
  run("layer_norm", nullptr, y, mean, rstd, x, nullptr, p);
}

void add_norm(Array& sum, Array& y, Array& mean, Array& rstd, const Array& x, const Array& branch,
              const NormParameters& p) {
  const auto run = mean.defined() ? norm<true, true> : norm<false, true>;
  run("add_norm", &sum, y, mean, rstd, x, &branch, p);
}

void layer_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& mean,
                         const Array& rstd, const Array& weight) {
  const auto run = mean.defined() ? norm_backward<true> : norm_backward<false>;
  run("layer_norm_backward", d, dy, x, mean, rstd, weight);
}

}  // namespace ink::cuda
