// An op over one dimension, such as softmax: what stands around its two kernels.
#pragma once

#include "autograd/kernels/kernel.h"
#include "autograd/tensor.h"

namespace ink {

struct OverDim {
  const char* name;
  /// y and dx in basic ops, over dimension d.
  Tensor (*definition)(const Tensor& x, int64_t d);
  Tensor (*gradient)(const Tensor& dy, const Tensor& y, int64_t d);
  /// The same over the last dimension, of contiguous arrays.
  const detail::Kernel<void(Array& y, const Array& x)>& kernel;
  const detail::Kernel<void(Array& dx, const Array& dy, const Array& y)>& backward_kernel;
  /// Of shorter rows, and over other dimensions, a CPU computes y by `lines` if it is given, else
  /// by basic ops. Both take less time, because they treat rows side by side.
  int64_t shortest_row = 0;
  Tensor (*lines)(const Tensor& x, int64_t d) = nullptr;  // of a contiguous f32 or f64 tensor
};

/// The op over dimension `dim` of x, recorded. Throws "name: ..." unless x is floating.
Tensor over_dim(const OverDim& op, const Tensor& x, int64_t dim);

}  // namespace ink
