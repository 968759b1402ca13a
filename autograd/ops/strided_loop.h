// Loops over several tensors of one shape and any strides: what elementwise kernels and copies are
// made of.
#pragma once

#include <array>

#include "autograd/parallel.h"
#include "autograd/tensor.h"

namespace ink {

/// The loops over N operands of one shape after joining the dimensions that all operands step
/// through evenly.
template <int N>
struct StridedLoop {
  Shape sizes;
  std::array<Shape, N> strides;  // in elements, innermost dimension last

  StridedLoop(const Shape& shape, const std::array<const Tensor*, N>& operands) {
    for (int64_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      if (!sizes.empty() && joins(d, operands)) {
        sizes.back() *= shape[d];
        for (size_t k = 0; k < N; ++k) strides[k].back() = operands[k]->strides()[d];
      } else {
        sizes.push_back(shape[d]);
        for (size_t k = 0; k < N; ++k) strides[k].push_back(operands[k]->strides()[d]);
      }
    }
    if (sizes.empty()) {
      sizes.push_back(shape.numel());
      for (Shape& s : strides) s.push_back(1);
    }
  }

  /// Calls row(offsets, count) for runs along the innermost dimension, in parallel; offsets in
  /// elements, one per operand.
  template <class Row>
  void for_each_row(Row&& row, int64_t grain = kGrain) const {
    const int64_t inner = sizes.back(), total = sizes.numel();
    parallel_for(total, grain, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t column = begin % inner, count = std::min(inner - column, end - begin);
        row(offsets_at(begin / inner, column), count);
        begin += count;
      }
    });
  }

  int64_t inner_stride(size_t operand) const { return strides[operand].back(); }

 private:
  // Does dimension d continue the last one kept? (The last stride must be size times this one, for
  // every operand.)
  bool joins(int64_t d, const std::array<const Tensor*, N>& operands) const {
    for (size_t k = 0; k < N; ++k) {
      if (strides[k].back() != operands[k]->strides()[d] * operands[k]->shape()[d]) return false;
    }
    return true;
  }

  std::array<int64_t, N> offsets_at(int64_t row, int64_t column) const {
    std::array<int64_t, N> offsets;
    for (size_t k = 0; k < N; ++k) offsets[k] = column * strides[k].back();
    for (int64_t d = sizes.size() - 2; d >= 0; --d) {
      const int64_t i = row % sizes[d];
      row /= sizes[d];
      for (size_t k = 0; k < N; ++k) offsets[k] += i * strides[k][d];
    }
    return offsets;
  }
};

}  // namespace ink
