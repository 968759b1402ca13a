// Dropout. Srivastava et al. 2014.
//   y  = x mask,  mask = 0 with probability p, else 1 / (1 - p)
//   dx = dy mask
// The mask is never stored: element i is kept if the i-th uniform number at a random position is at
// least p, and backward draws the same numbers again.
#include <cmath>

#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/philox.h"

namespace ink {

namespace cpu {

void dropout(Tensor& y, const Tensor& x, double p, const RandomPosition& at) {
  constexpr uint64_t kBlock = 256;  // elements whose random words are made at a time, in vectors
  const uint64_t key = Philox::derive(at.seed, at.step, at.micro_batch);
  const uint64_t row = x.dim() && x.numel() ? static_cast<uint64_t>(x.numel() / x.size(0)) : 0;
  const uint64_t first = at.first_row * row;  // index in the whole batch of the first element here
  const auto threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24));  // Philox::uniform's digits
  for_float("dropout", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const C scale = static_cast<C>(1 / (1 - p));
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      uint32_t words[kBlock];
      for (int64_t i = begin; i < end;) {
        const uint64_t index = first + static_cast<uint64_t>(i), block = index / kBlock * kBlock;
        for (uint64_t k = 0; k < kBlock; k += 4) {
          const auto four = Philox::at(key, (block + k) / 4, at.call);
          for (uint64_t j = 0; j < 4; ++j) words[k + j] = four[j] >> 8;
        }
        const uint32_t* word = words + (index - block);
        const int64_t n = std::min(end - i, static_cast<int64_t>(block + kBlock - index));
        for (int64_t j = 0; j < n; ++j)
          out[i + j] =
              static_cast<T>(static_cast<C>(in[i + j]) * (word[j] < threshold ? 0 : scale));
        i += n;
      }
    });
  });
}

}  // namespace cpu

static Tensor dropout_composed(const Tensor& x, double p, const RandomPosition& at) {
  const Tensor one = ones(x.shape(), {x.dtype() == f64 ? f64 : f32, x.device()});
  Tensor mask = empty_like(one);
  kernel::dropout(mask, one, p, at);
  return (x * mask).to(x.dtype());
}

Tensor dropout(const Tensor& input, double p, bool training) {
  INK_CHECK(p >= 0 && p <= 1, "dropout: expected a probability in [0, 1], got ", p);
  if (p == 0 || !training) return input;
  const RandomPosition at = context().random;
  ++context().random.call;
  if (composed()) return dropout_composed(input, p, at);
  const Tensor x = input.contiguous();
  Tensor y = empty_like(x);
  kernel::dropout(y, x, p, at);
  return record_fused("dropout", {x}, y, [p, at](const Tensor& dy) -> Grads {
    Tensor dx = empty_like(dy);
    kernel::dropout(dx, dy.contiguous(), p, at);
    return {dx};
  });
}

}  // namespace ink
