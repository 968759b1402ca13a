// Ops on some places of a tensor's memory. With them, views of a tensor that was written in place
// are recorded (engine/writes.cpp). `whole` is the tensor's layout, `part` one that names some of
// its places.
//
//   as_strided       y = a view of x as `part`
//   gather_strided   y = the elements of x, of whole's shape, at the places of part
//   scatter_strided  y = zeros of whole's shape, with x added at the places of part (unfold's, too)
//   copy_slices      y = x with a value at the places of part
//
// gather and scatter are each other's gradient.
#include "autograd/basic_ops.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/elementwise.h"

namespace ink {
namespace {

// New memory laid out as `whole`, from its first element on.
Array empty_laid_out(const Layout& whole, DType dtype, Device device) {
  int64_t extent = whole.sizes.numel() > 0 ? 1 : 0;
  for (int64_t d = 0; d < whole.sizes.size() && extent > 0; ++d)
    extent += (whole.sizes[d] - 1) * whole.strides[d];
  return Array::empty({extent}, dtype, device).seen_as({whole.sizes, whole.strides, 0});
}

// x, or a copy of it, with whole's strides.
Array laid_out(const Array& x, const Layout& whole) {
  if (x.strides() == whole.strides) return x;
  Array y = empty_laid_out(whole, x.dtype(), x.device());
  kernel::copy(y, x);
  return y;
}

// x, which is laid out as `whole`, seen at the places of `part`.
Array places(const Array& x, const Layout& whole, Layout part) {
  part.offset += x.layout().offset - whole.offset;
  return x.seen_as(part);
}

Tensor gather_strided(const Tensor& x, const Layout& whole, const Layout& part) {
  Tensor y = empty(part.sizes, x.options());
  kernel::copy(y, places(laid_out(x, whole), whole, part));
  return record("gather_strided", {x}, y, [whole, part](const Tensor& dy) -> Grads {
    return {detail::scatter_strided(dy, whole, part)};
  });
}

// y += x at the places of part. Where they repeat, the shortest dimension that takes part in it is
// added one index at a time.
void add_at(const Array& y, const Array& x, const Layout& whole, const Layout& part) {
  const int64_t repeated = part.repeated_dim();
  if (repeated < 0) {
    Array at = places(y, whole, part);
    return kernel::binary(at, at, x, BinaryOp::add);
  }
  int64_t dim = repeated;
  for (int64_t d = 0; d < part.sizes.size(); ++d) {
    if (part.strides[d] <= part.strides[repeated] && part.sizes[d] > 1 &&
        part.sizes[d] < part.sizes[dim])
      dim = d;
  }
  Layout to = part, from = x.layout();
  to.sizes[dim] = from.sizes[dim] = 1;
  for (int64_t i = 0; i < part.sizes[dim]; ++i) {
    add_at(y, x.seen_as(from), whole, to);
    to.offset += part.strides[dim];
    from.offset += x.strides()[dim];
  }
}

// dy with zeros at the places of `part`. If nobody else holds dy, its own memory is written.
Tensor zeroed(const Tensor& dy, const Layout& whole, const Layout& part) {
  if (grad_enabled()) {  // the gradient will be differentiated
    const NoGrad no_grad;
    const Tensor mask =
        detail::scatter_strided(ones({}, dy.options()).expand(part.sizes), whole, part) != 0;
    const EnableGrad enable_grad;
    return masked_fill(dy, mask, 0);
  }
  const bool own = dy.strides() == whole.strides && dy.alone();
  Tensor dx = own ? dy : Tensor(empty_laid_out(whole, dy.dtype(), dy.device()));
  if (!own) kernel::copy(dx, dy);
  Array at = places(dx, whole, part);
  kernel::fill(at, 0);
  return dx;
}

}  // namespace

// Dimensions that are expanded in `part` are summed first.
Tensor detail::scatter_strided(const Tensor& x, const Layout& whole, const Layout& part) {
  Layout once = part;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (part.strides[d] == 0) once.sizes[d] = std::min<int64_t>(part.sizes[d], 1);
  }
  Array y = empty_laid_out(whole, x.dtype(), x.device());
  kernel::fill(y, 0);
  const Tensor source = sum_to(x.detach(), once.sizes);
  if (once.repeats()) {
    add_at(y, source, whole, once);
  } else {
    Array at = places(y, whole, once);
    kernel::copy(at, source);
  }
  return record("scatter_strided", {x}, Tensor(y), [whole, part](const Tensor& dy) -> Grads {
    return {gather_strided(dy, whole, part)};
  });
}

// dx = dy scattered
Tensor detail::as_strided(const Tensor& x, const Layout& part) {
  return record("as_strided", {x}, x.alias(part),
                [whole = x.layout(), part](const Tensor& dy) -> Grads {
                  return {scatter_strided(dy, whole, part)};
                });
}

// dx = dy with zeros at the places of part, dvalue = dy at those places
Tensor detail::copy_slices(const Tensor& x, const Tensor& value, const Layout& part) {
  return record("copy_slices", {x, value}, x.detach(),
                [whole = x.layout(), part](const Tensor& dy, VjpContext& g) -> Grads {
                  const Tensor dvalue = g.needs(1) ? gather_strided(dy, whole, part) : Tensor();
                  return {g.needs(0) ? zeroed(dy, whole, part) : Tensor(), dvalue};
                });
}

}  // namespace ink
