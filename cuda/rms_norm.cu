// Root-mean-square normalisation over the last dimension: the twin of autograd/ops/rms_norm.cpp.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include "cuda/norm.cuh"

namespace ink::cuda {

void rms_norm(Array& y, Array& rstd, const Array& x, const NormParameters& p) {
  Array no_mean;
  norm<false, false>("rms_norm", nullptr, y, no_mean, rstd, x, nullptr, p);
}

void rms_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& rstd,
                       const Array& weight) {
  norm_backward<false>("rms_norm_backward", d, dy, x, Array(), rstd, weight);
}

}  // namespace ink::cuda
