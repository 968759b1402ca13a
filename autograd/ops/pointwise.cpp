// Elementwise ops of one and two tensors. The formulas are in pointwise.h; here are the loops, the
// public ops and their vjps, which are written with public ops and so can be differentiated again.
#include "autograd/kernels.h"
#include "autograd/ops.h"
#include "autograd/ops/strided_loop.h"

namespace ink {

// ---- kernels
// -----------------------------------------------------------------------------------------------------

namespace cpu {
namespace {

template <class F, class T>
void unary_rows(Tensor& y, const Tensor& x) {
  using C = compute_t<T>;
  const StridedLoop<2> loop(y.shape(), {&y, &x});
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1);
  T* out = y.mutable_data<T>();
  const T* in = x.data<T>();
  loop.for_each_row([&](auto offset, int64_t n) {
    T* to = out + offset[0];
    const T* from = in + offset[1];
    if (sy == 1 && sx == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(F::f(static_cast<C>(from[i])));
    } else {
      for (int64_t i = 0; i < n; ++i)
        to[i * sy] = static_cast<T>(F::f(static_cast<C>(from[i * sx])));
    }
  });
}

template <class F, class T>
void binary_rows(Tensor& y, const Tensor& a, const Tensor& b) {
  using C = compute_t<T>;
  const StridedLoop<3> loop(y.shape(), {&y, &a, &b});
  const int64_t sy = loop.inner_stride(0), sa = loop.inner_stride(1), sb = loop.inner_stride(2);
  T* out = y.mutable_data<T>();
  const T *left = a.data<T>(), *right = b.data<T>();
  const auto f = [](T p, T q) {
    return static_cast<T>(F::f(static_cast<C>(p), static_cast<C>(q)));
  };
  loop.for_each_row([&](auto offset, int64_t n) {
    T* to = out + offset[0];
    const T *p = left + offset[1], *q = right + offset[2];
    if (sy == 1 && sa == 1 && sb == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], q[i]);
    } else if (sy == 1 && sa == 1 && sb == 0) {
      for (int64_t i = 0; i < n; ++i) to[i] = f(p[i], q[0]);
    } else if (sy == 1 && sa == 0 && sb == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = f(p[0], q[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * sy] = f(p[i * sa], q[i * sb]);
    }
  });
}

}  // namespace

void unary(Tensor& y, const Tensor& x, UnaryOp op) {
  for_float("unary", x.dtype(), [&]<class T>(T) {
#define INK_CASE(name) \
  case UnaryOp::name:  \
    return unary_rows<formula::name, T>(y, x);
    switch (op) { INK_UNARY_OPS(INK_CASE) }
#undef INK_CASE
  });
}

void binary(Tensor& y, const Tensor& a, const Tensor& b, BinaryOp op) {
  for_float("binary", a.dtype(), [&]<class T>(T) {
#define INK_CASE(name) \
  case BinaryOp::name: \
    return binary_rows<formula::name, T>(y, a, b);
    switch (op) { INK_BINARY_OPS(INK_CASE) }
#undef INK_CASE
  });
}

}  // namespace cpu

namespace {

Tensor unary(UnaryOp op, const Tensor& x) {
  Tensor y = empty_like(x);
  kernel::unary(y, x, op);
  return y;
}

Tensor binary(const char* name, BinaryOp op, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes(name, a.shape(), b.shape());
  Tensor y = empty(shape, a.options());
  const NoGrad no_grad;
  kernel::binary(y, expand(a, shape), expand(b, shape), op);
  return y;
}

}  // namespace

// ---- two tensors
// -------------------------------------------------------------------------------------------------

// da = dy, db = dy, each summed where it was broadcast
Tensor add(const Tensor& a, const Tensor& b) {
  return record(
      "add", {a, b}, binary("add", BinaryOp::add, a, b),
      [sa = a.shape(), sb = b.shape()](const Tensor& dy, VjpContext& g) -> Grads {
        return {g.needs(0) ? sum_to(dy, sa) : Tensor(), g.needs(1) ? sum_to(dy, sb) : Tensor()};
      });
}

// da = dy b, db = dy a
Tensor mul(const Tensor& a, const Tensor& b) {
  return record(
      "mul", {a, b}, binary("mul", BinaryOp::mul, a, b),
      [a = Saved::input(a), b = Saved::input(b)](const Tensor& dy, VjpContext& g) -> Grads {
        return {g.needs(0) ? sum_to(mul(dy, *b), (*a).shape()) : Tensor(),
                g.needs(1) ? sum_to(mul(dy, *a), (*b).shape()) : Tensor()};
      });
}

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }

// ---- one tensor
// --------------------------------------------------------------------------------------------------

// dx = dy y
Tensor exp(const Tensor& x) {
  Tensor y = unary(UnaryOp::exp, x);
  return record("exp", {x}, y,
                [y = Saved::output(y)](const Tensor& dy) -> Grads { return {mul(dy, *y)}; });
}

// ---- in place
// ----------------------------------------------------------------------------------------------------

namespace {

// x op= y: plain memory when no graph needs it; else the ordinary op, whose value is copied into
// x's memory and whose slot this handle takes over.
template <class Op>
Tensor& in_place(const char* name, Tensor& x, const Tensor& y, BinaryOp code, Op op) {
  const Shape shape = broadcast_shapes(name, x.shape(), y.shape());
  INK_CHECK(shape == x.shape(), "output with shape ", x.shape(),
            " doesn't match the broadcast shape ", shape);
  const bool graph = grad_enabled() && (x.requires_grad() || y.requires_grad());
  detail::check_in_place(name, x, y.requires_grad());
  const Tensor result = graph ? op(x, y) : Tensor();
  const NoGrad no_grad;
  if (graph) {
    kernel::copy(x, result);
    detail::rebind(x, result);
  } else {
    kernel::binary(x, x, expand(y, x.shape()), code);
  }
  return x;
}

}  // namespace

Tensor& Tensor::copy_(const Tensor& y) {
  detail::check_in_place("copy_", *this, y.requires_grad());
  const NoGrad no_grad;
  kernel::copy(*this, ink::expand(y, shape()));
  return *this;
}
Tensor& Tensor::add_(const Tensor& y) {
  return in_place("add_", *this, y, BinaryOp::add, ink::add);
}
Tensor& Tensor::mul_(const Tensor& y) {
  return in_place("mul_", *this, y, BinaryOp::mul, ink::mul);
}

}  // namespace ink
