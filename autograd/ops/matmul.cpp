// Matrix products of all ranks, on kernel::gemm (gemm/gemm.h).
#include "autograd/basic_ops.h"
#include "autograd/kernels/gemm.h"

namespace ink {
namespace {

// a b summed over the batch, of one dimension, for an operand of this shape that was broadcast over
// all of it. Products are added up in place, because they may take far more memory than their sum.
// Small ones are one product, of all matrices side by side.
Tensor sum_of_products(const Tensor& a, const Tensor& b, const Shape& shape) {
  if (grad_enabled() || shape.size() > 2 || a.dim() != 3) return sum_to(matmul(a, b), shape);
  constexpr int64_t kSmall = 1 << 16;  // multiplications
  const int64_t m = a.size(1), n = b.size(2), all = a.size(0) * a.size(2);
  if (m * n * a.size(2) <= kSmall)
    return matmul(reshape(transpose(a, 0, 1), {m, all}), reshape(b, {all, n}));
  Tensor sum = zeros({m, n}, {a.dtype() == bf16 ? f32 : a.dtype(), a.device()});
  for (int64_t i = 0; i < a.size(0); ++i) kernel::gemm(sum, select(a, 0, i), select(b, 0, i), true);
  return sum.to(a.dtype());
}

// c = a b for matrices, with a batch in front that broadcasts.
//   da = dc b^T, db = a^T dc, each summed over the batch where it was broadcast
Tensor batched_matmul(const Tensor& a, const Tensor& b) {
  Shape batch_a = a.shape(), batch_b = b.shape();
  for (Shape* shape : {&batch_a, &batch_b}) {
    shape->erase(shape->size() - 1);
    shape->erase(shape->size() - 1);
  }
  const Shape batch = broadcast_shapes("matmul", batch_a, batch_b);
  const auto with_matrix = [&batch](int64_t rows, int64_t cols) {
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(cols);
    return shape;
  };
  Tensor c = empty(with_matrix(a.size(-2), b.size(-1)), a.options());
  kernel::gemm(c, a.array().expanded(with_matrix(a.size(-2), a.size(-1))),
               b.array().expanded(with_matrix(b.size(-2), b.size(-1))), false);
  return record("matmul", {a, b}, c,
                [sa = a.shape(), sb = b.shape(), a = Saved::input(a), b = Saved::input(b)](
                    const Tensor& dc, VjpContext& g) -> Grads {
                  return {g.needs(0) ? sum_of_products(dc, transpose(*b, -2, -1), sa) : Tensor(),
                          g.needs(1) ? sum_of_products(transpose(*a, -2, -1), dc, sb) : Tensor()};
                });
}

// Can (..., n, k) @ (k, m) be one product of (... n, k)? It can if a's rows need no copy for that.
bool folds(const Tensor& a, const Tensor& b) {
  if (a.dim() <= 2 || b.dim() != 2) return false;
  for (int64_t d = 0; d < a.dim() - 2; ++d) {
    if (a.strides()[d] != a.strides()[d + 1] * a.shape()[d + 1]) return false;
  }
  return true;
}

}  // namespace

// The name of the last of the ops of which PyTorch 2.15 makes this product.
static const char* torch_name(const Tensor& a, const Tensor& b) {
  if (a.dim() == 1 && b.dim() <= 2) return b.dim() == 1 ? "dot" : "squeeze.4";
  if (a.dim() == 2 && b.dim() <= 2) return b.dim() == 1 ? "mv" : "mm";
  const bool alone = a.dim() == 3 && b.dim() == 3 && a.size(0) == 1 && b.size(0) != 1;
  if (!(a.dim() == 2 || alone) || !a.requires_grad()) return "unsafe_view";
  bool empty = a.size(-2) == 0;
  for (int64_t d = 0; d < b.dim(); ++d) empty |= d != b.dim() - 2 && b.size(d) == 0;
  const bool line = a.size(-2) == 1 || b.size(-1) == 1 || empty;
  return line ? "transpose" : "clone";
}

static Tensor product(const Tensor& a, const Tensor& b) {
  if (a.dim() == 1) return squeeze(product(unsqueeze(a, 0), b), b.dim() == 1 ? 0 : -2);
  if (b.dim() == 1) return squeeze(product(a, unsqueeze(b, 1)), -1);
  if (!folds(a, b)) return batched_matmul(a, b);
  Shape leading = a.shape(), shape = a.shape();
  leading.back() = 1;
  shape.back() = b.size(-1);
  return reshape(batched_matmul(view(a, {leading.numel(), a.size(-1)}), b), shape);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_defined("matmul", a, b);
  INK_CHECK(a.dim() >= 1 && b.dim() >= 1, "matmul: expected at least one dimension, got ",
            a.shape(), " @ ", b.shape());
  INK_CHECK(a.dtype() == b.dtype(), "matmul: expected one dtype, got ", a.dtype(), " @ ",
            b.dtype());
  INK_CHECK(a.dtype() != boolean, "matmul: expected numbers, got bool");
  INK_CHECK(a.size(-1) == b.size(b.dim() == 1 ? 0 : -2),
            "matmul: inner dimensions differ: ", a.shape(), " @ ", b.shape());
  return shown_as(torch_name(a, b), product(a, b));
}

Tensor dot(const Tensor& a, const Tensor& b) {
  check_defined("dot", a, b);
  INK_CHECK(a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel(),
            "dot: expected two vectors of one size, got ", a.shape(), " and ", b.shape());
  return matmul(a, b);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  check_defined("outer", a, b);
  INK_CHECK(a.dim() == 1 && b.dim() == 1, "outer: expected two vectors, got ", a.shape(), " and ",
            b.shape());
  return mul(unsqueeze(a, 1), b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_defined("bmm", a, b);
  INK_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1),
            "bmm: expected (b, n, k) and (b, k, m), got ", a.shape(), " and ", b.shape());
  return shown_as("bmm", matmul(a, b));
}

}  // namespace ink
