// log_softmax over the last dimension: the twin of autograd/ops/log_softmax.cpp. softmax.cu has its
// kernels.
#include "cuda/rows.cuh"

namespace ink::cuda {

void log_softmax(Array& y, const Array& x) { softmax_rows(y, x, true); }

void log_softmax_backward(Array& dx, const Array& dy, const Array& y) {
  softmax_rows_backward(dx, dy, y, true);
}

}  // namespace ink::cuda
