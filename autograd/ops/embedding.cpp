// Rows of a table (V, C) by ids (...).
//   y[i]          = weight[ids[i]]
//   dweight[v]    = sum of dy[i] over all i with ids[i] = v
#include <algorithm>

#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {

namespace cpu {

void embedding(Array& y, const Array& ids, const Array& weight) {
  for_float("embedding", weight.dtype(), [&]<class T>(T) {
    const int64_t n = weight.size(-1);
    const int64_t* id = ids.data<int64_t>();
    const T* table = weight.data<T>();
    T* out = y.mutable_data<T>();
    for_each_row(ids.numel(), n,
                 [=](int64_t row) { std::copy_n(table + id[row] * n, n, out + row * n); });
  });
}

// A thread owns some columns of the whole table and adds the rows in order. So no two threads write
// one element, and the bits do not depend on their number.
void embedding_backward(Array& dweight, const Array& dy, const Array& ids) {
  for_float("embedding_backward", dy.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    constexpr int64_t kCacheLine = 64 / sizeof(C);
    const int64_t n = dy.size(-1), rows = ids.numel();
    const int64_t* id = ids.data<int64_t>();
    const T* upstream = dy.data<T>();
    C* table = dweight.mutable_data<C>();
    const int64_t grain = std::max(kCacheLine, kGrain / std::max<int64_t>(rows, 1));
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < rows; ++row) {
        const T* g = upstream + row * n;
        C* sum = table + id[row] * n;
        for (int64_t i = begin; i < end; ++i) sum[i] += static_cast<C>(g[i]);
      }
    });
  });
}

}  // namespace cpu

static Tensor embedding_composed(const Tensor& ids, const Tensor& weight) {
  return index(weight, ids);
}

Tensor embedding(const Tensor& input, const Tensor& table) {
  check_defined("embedding", input, table);
  INK_CHECK(table.dim() == 2, "embedding: expected a weight (rows, columns), got ", table.shape());
  check_ids("embedding", "id", input, table.size(0), "rows");
  check_dims("embedding", input.dim() + 1);
  if (composed()) return embedding_composed(input, table);
  const Tensor ids = input.contiguous(), weight = table.contiguous();
  Shape shape = ids.shape();
  shape.push_back(weight.size(1));
  Tensor y = empty(shape, weight.options());
  kernel::embedding(y, ids, weight);
  const auto vjp = [ids = Saved::input(ids, "its ids"), shape = weight.shape(),
                    dtype = weight.dtype()](const Tensor& dy, VjpContext& g) -> Grads {
    if (grad_enabled()) {  // the gradient will be differentiated
      const Tensor rows = reshape(dy, {(*ids).numel(), shape[1]});
      const Tensor places = expand(view(*ids, {(*ids).numel(), 1}), rows.shape());
      return {scatter_add(zeros(shape, dy.options()), 0, places, rows)};
    }
    const bool narrow = dtype == bf16;  // summed in f32, rounded once
    Tensor dweight = narrow ? Tensor() : g.sum_so_far(0);
    if (!dweight.defined()) dweight = zeros(shape, {narrow ? f32 : dtype, dy.device()});
    kernel::embedding_backward(dweight, dy.contiguous(), *ids);
    return {dweight.to(dtype)};
  };
  return record("embedding", {weight}, y, vjp);
}

Tensor embedding(const Tensor& ids, const Tensor& weight, NumberOf<int64_t> padding_idx) {
  const Tensor y = embedding(ids, weight);
  const int64_t rows = weight.size(0), row = padding_idx + (padding_idx < 0 ? rows : 0);
  INK_CHECK(row >= 0 && row < rows, "embedding: padding_idx ", padding_idx, " is not one of ", rows,
            " rows");
  return shown_as("embedding", where(unsqueeze(ids == row, -1), y.detach(), y));
}

}  // namespace ink
