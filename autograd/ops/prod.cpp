// prod: the product over dimensions.
#include "autograd/kernels/reduce.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/reduce_dims.h"

namespace ink {

// For each element along the last dimension, the product of all others. It works on pairs of an
// element a of the first half and b of the second, with products p. If e is the product of all
// other p, the result is e b for a and e a for b. Without a division, zeros need no special case.
static Tensor product_of_others(const Tensor& x) {
  const int64_t n = x.size(-1);
  if (n == 0) return x;
  if (n == 1) return ones_like(x);
  Shape one_more = x.shape();
  one_more.back() = 1;
  if (n % 2) return narrow(product_of_others(cat({x, ones(one_more, x.options())}, -1)), -1, 0, n);
  const Tensor a = narrow(x, -1, 0, n / 2), b = narrow(x, -1, n / 2, n / 2);
  const Tensor e = product_of_others(a * b);
  return cat({e * b, e * a}, -1);
}

// y = product of x over dims.   dx = dy times the product of the others: dy y / x unless there are
// none, or y is 0 or not finite. (A GPU's y is not looked at, because the host would have to wait
// for the answer.)
Tensor prod(const Tensor& x, const Shape& dims, Flag keepdim) {
  const ReducedShape shape("prod", x, dims);
  Tensor y = empty(shape.kept, {x.is_floating() ? x.dtype() : i64, x.device()});
  kernel::reduce(y, x, ReduceOp::prod);
  const Tensor result = shape.finish(y, keepdim);
  const auto vjp = [shape, x = Saved::input(x),
                    y = Saved::output(result)](const Tensor& dy) -> Grads {
    const bool divides =
        shape.count > 1 && dy.device().is_cpu() && all(isfinite(*y) & (*y != 0)).item<bool>();
    if (divides) return {shape.keep(dy * *y) / *x};
    Shape sizes, back = shape.from;
    const Shape order = shape.reduced_last();
    for (int64_t i = 0; i < order.size(); ++i) {
      sizes.push_back(shape.from[order[i]]);
      back[order[i]] = i;
    }
    const Tensor rows = reshape(permute(*x, order), {shape.kept.numel(), shape.count});
    return {shape.keep(dy) * permute(reshape(product_of_others(rows), sizes), back)};
  };
  return shown_as(dims.empty() ? "prod" : "prod.1", record("prod", {x}, result, vjp));
}

}  // namespace ink
