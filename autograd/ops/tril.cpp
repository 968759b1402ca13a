// tril, triu: the lower or upper triangle of each matrix.
#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/lines.h"

namespace ink {

namespace cpu {

void triangle(Array& y, const Array& x, int64_t diagonal, bool lower) {
  const int64_t columns = x.size(-1), height = x.size(-2);
  const int64_t rows = columns > 0 ? x.numel() / columns : 0;
  for_any(x.dtype(), [&]<class T>(T) {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    parallel_for(rows, kGrain / std::max<int64_t>(columns, 1), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        // tril keeps the columns up to this one, triu those from the one on
        const int64_t i = row % height + std::clamp(diagonal, -height, columns);
        const int64_t cut = std::clamp<int64_t>(lower ? i + 1 : i, 0, columns);
        const T* from = in + row * columns;
        T* to = out + row * columns;
        const int64_t first = lower ? 0 : cut, last = lower ? cut : columns;
        std::fill(to, to + first, T(0));
        std::copy(from + first, from + last, to + first);
        std::fill(to + last, to + columns, T(0));
      }
    });
  });
}

}  // namespace cpu

static Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool lower) {
  check_defined(op, x);
  INK_CHECK(x.dim() >= 2, op, ": expected a matrix or a batch of them, got ", x.shape());
  Tensor y = empty_like(x);
  kernel::triangle(y, contiguous(x.array()), diagonal, lower);
  return record(op, {x}, y,
                [=](const Tensor& dy) -> Grads { return {triangle(op, dy, diagonal, lower)}; });
}

// y = x where column <= row + diagonal, else 0.   dx = dy in the same places
Tensor tril(const Tensor& x, int64_t diagonal) { return triangle("tril", x, diagonal, true); }
// y = x where column >= row + diagonal, else 0.   dx = dy in the same places
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle("triu", x, diagonal, false); }

}  // namespace ink
