// Reductions over any dimensions.
#include "autograd/kernels.h"
#include "autograd/ops.h"

namespace ink {

namespace cpu {

void reduce_sum(Tensor& y, const Tensor& x) {
  for_any(x.dtype(), [&]<class From>(From) {
    for_any(y.dtype(), [&]<class To>(To) {
      const From* in = x.data<From>();
      To* out = y.mutable_data<To>();
      std::vector<double> totals(static_cast<size_t>(y.numel()));
      Shape index = Shape::filled(x.dim(), 0);
      for (int64_t k = 0; k < x.numel(); ++k) {
        int64_t from = 0, to = 0;
        for (int64_t d = 0; d < x.dim(); ++d) {
          from += index[d] * x.strides()[d];
          if (y.shape()[d] != 1) to += index[d] * y.strides()[d];
        }
        totals[static_cast<size_t>(to)] += static_cast<double>(in[from]);
        for (int64_t d = x.dim() - 1; d >= 0 && ++index[d] == x.shape()[d]; --d) index[d] = 0;
      }
      for (size_t i = 0; i < totals.size(); ++i) out[i] = static_cast<To>(totals[i]);
    });
  });
}

}  // namespace cpu

// y = sum of x over dims.   dx = dy expanded
Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  Shape kept = x.shape(), squeezed;
  if (dims.empty()) kept = Shape::filled(x.dim(), 1);
  for (int64_t d : dims) kept[wrap_dim("sum", d, x.shape())] = 1;
  Tensor y = zeros(kept, x.options());
  kernel::reduce_sum(y, x);
  for (int64_t d = 0; d < x.dim(); ++d) {
    bool reduced = dims.empty();
    for (int64_t r : dims) reduced |= wrap_dim("sum", r, x.shape()) == d;
    if (!reduced || keepdim) squeezed.push_back(kept[d]);
  }
  return record("sum", {x}, y.view(squeezed), [from = x.shape(), kept](const Tensor& dy) -> Grads {
    return {expand(reshape(dy, kept), from)};
  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Shape dims;
  const int64_t added = x.dim() - shape.size();
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d < added || (shape[d - added] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  }
  return reshape(dims.empty() ? x : sum(x, dims, true), shape);
}

}  // namespace ink
