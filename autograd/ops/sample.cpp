// Draws from probabilities (..., V): an element of each row.
//   y = the first i with p_0 + ... + p_i > u, u uniform in [0, 1)
// u is a function of the context's random position and the row. No gradient.
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/random/dropout_mask.h"
#include "autograd/random/sample_units.h"

namespace ink {

namespace cpu {

void sample(Array& ids, const Array& probabilities, const RandomPosition& at) {
  const int64_t n = probabilities.size(-1);
  const uint64_t key = Philox::derive(at.seed, at.step, at.micro_batch);
  int64_t* out = ids.mutable_data<int64_t>();
  for_float("sample", probabilities.dtype(), [&]<class T>(T) {
    const T* all = probabilities.data<T>();
    for_each_row(ids.numel(), n, [=](int64_t row) {
      const T* p = all + row * n;
      const uint64_t u = SampleUnits::draw(key, at.first_row + static_cast<uint64_t>(row), at.call);
      uint64_t total = 0;
      int64_t chosen = -1, possible = 0;
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t units = SampleUnits::of(static_cast<compute_t<T>>(p[i]));
        total = SampleUnits::join(total, units);
        if (units > 0) possible = i;
        if (chosen < 0 && total > u) chosen = i;
      }
      INK_CHECK(SampleUnits::are_whole(total), "sample: the probabilities of row ", row,
                " are not finite, or do not sum to 1");
      out[row] = chosen < 0 ? possible : chosen;  // rounding can leave a remainder: take the last
    });
  });
}

}  // namespace cpu

Tensor sample(const Tensor& probabilities) {
  check_defined("sample", probabilities);
  INK_CHECK(probabilities.dim() >= 1, "sample: expected probabilities (..., V), got a scalar");
  RandomPosition at = context().random;
  ++context().random.call;
  Shape shape = probabilities.shape();
  shape.back() = 1;
  check_part("sample", shape, at);
  if (at.rows > 0)
    at.first_row = static_cast<uint64_t>(first_of_batch(at, shape.numel(), shape[0]));
  Tensor ids = empty(shape, {i64, probabilities.device()});
  kernel::sample(ids, probabilities.detach().contiguous(), at);
  return ids;
}

}  // namespace ink
