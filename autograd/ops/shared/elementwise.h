// Where the result of an elementwise op lies.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// Do the elements fill their memory, without gaps or repeats, in whatever order?
inline bool fills_its_memory(const Array& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.dim()));
  std::iota(dims.begin(), dims.end(), 0);
  std::sort(dims.begin(), dims.end(),
            [&](int64_t a, int64_t b) { return x.strides()[a] < x.strides()[b]; });
  int64_t step = 1;
  for (const int64_t d : dims) {
    if (x.size(d) == 1) continue;
    if (x.strides()[d] != step) return false;
    step *= x.size(d);
  }
  return true;
}

/// An uninitialised tensor for the result of an elementwise op. As in PyTorch, its elements have
/// the order in memory of the first input with its shape, if that one fills its memory (a
/// transposed view does). So both are read and written from end to end.
inline Tensor empty_result(const Shape& shape, const Options& options,
                           std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* x : inputs) {
    if (x->shape() != shape) continue;
    if (x->is_contiguous() || !fills_its_memory(*x)) break;
    const Array memory = Array::empty({shape.numel()}, options.dtype, options.device);
    return Tensor(memory.seen_as({shape, x->strides(), 0}));
  }
  return empty(shape, options);
}

}  // namespace ink
