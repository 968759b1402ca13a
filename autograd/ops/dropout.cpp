// Dropout. Srivastava et al. 2014.
//   y  = x mask,  mask = 0 with probability p, else 1 / (1 - p)
//   dx = dy mask
// The mask is never stored (random/dropout_mask.h): backward draws the same numbers again.
#include <algorithm>
#include <numeric>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/ops/shared/dropout.h"
#include "autograd/random/dropout_mask.h"
#include "autograd/random/generator.h"

namespace ink {

namespace cpu {

static constexpr int64_t kBlock = 256;  // elements whose random words are drawn at a time

void dropout(Array& y, const Array& x, double p, const RandomPosition& at) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const DropoutMask mask(p, at);
  const int64_t first = first_of_batch(at, n, x.dim() ? x.size(0) : 1);
  const int64_t first_block = first / kBlock, end_block = (first + n - 1) / kBlock + 1;
  for_float("dropout", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const C kept = static_cast<C>(mask.kept);
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    for_each_row(end_block - first_block, kBlock, [=](int64_t i) {
      const int64_t block = first_block + i, start = block * kBlock - first;
      uint32_t digits[kBlock];
      C factors[kBlock];
      mask.fill_digits(digits, static_cast<uint64_t>(block * (kBlock / 4)), kBlock / 4);
      const C factor = kept;  // in a register, because a load would turn the choice into a branch
      for (int64_t k = 0; k < kBlock; ++k) factors[k] = mask.drops(digits[k]) ? 0 : factor;
      for (int64_t k = std::max<int64_t>(start, 0); k < std::min(start + kBlock, n); ++k)
        out[k] = static_cast<T>(static_cast<C>(in[k]) * factors[k - start]);
    });
  });
}

}  // namespace cpu

// The mask has at least 32 bits, because 1 / (1 - p) would be rounded in bf16.
static Tensor dropout_composed(const Tensor& x, double p, const RandomPosition& at) {
  const Tensor one = ones(x.shape(), {x.dtype() == f64 ? f64 : f32, x.device()});
  Tensor mask = empty_like(one);
  kernel::dropout(mask, one, p, at);
  return (x * mask).to(x.dtype());
}

// Under ImitateTorch the mask is made of PyTorch's numbers and must be kept. p = 1 draws none.
// PyTorch draws them in the order of x's memory, and by MKL's rule in row-major order.
static Tensor dropout_of_torch(const Tensor& x, double p, BernoulliRule rule) {
  if (x.numel() == 0) return x;
  if (p == 1) return x * zeros({}, x.options());
  Shape order = by_stride(x), sizes = order, place = order;
  if (rule != BernoulliRule::plain || x.layout().repeats())
    std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < x.dim(); ++i) {
    sizes[i] = x.size(order[i]);
    place[order[i]] = i;
  }
  Tensor mask = empty(sizes, {x.dtype() == f64 ? f64 : f32, x.device()});
  bernoulli_(mask, 1 - p, default_generator(), rule);
  return x * (permute(mask, place) / (1 - p)).to(x.dtype());
}

// The gradient is the same op, applied to dy.
Tensor dropout_at(const Tensor& input, double p, const RandomPosition& at) {
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x);
  kernel::dropout(y, x, p, at);
  return record("dropout", {x}, y,
                [p, at](const Tensor& dy) -> Grads { return {dropout_at(dy, p, at)}; });
}

RandomPosition next_mask(const Tensor& x, double p) {
  INK_CHECK(p >= 0 && p <= 1, "dropout: expected a probability in [0, 1], got ", p);
  const RandomPosition at = context().random;
  check_part("dropout", x.shape(), at);
  ++context().random.call;
  return at;
}

Tensor dropout(const Tensor& input, NumberOf<double> probability, bool training) {
  const double p = probability;
  check_defined("dropout", input);
  INK_CHECK(p >= 0 && p <= 1, "dropout: expected a probability in [0, 1], got ", p);
  if (p == 0 || !training) return input;
  if (const auto rule = context().imitate_torch) return dropout_of_torch(input, p, *rule);
  const RandomPosition at = next_mask(input, p);
  if (composed()) return dropout_composed(input, p, at);
  return dropout_at(input, p, at);
}

}  // namespace ink
