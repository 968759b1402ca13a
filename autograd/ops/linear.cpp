// y = x W^T + b for x (..., in), W (out, in), b (out).
//   dx = dy W,  dW = dy^T x,  db = sum of dy's rows
// Under Autocast x, W and y are bf16, whatever the dtypes of the inputs, and every gradient has the
// dtype of its input: dW and db are summed in f32, straight out of the products.
#include "autograd/ops/shared/linear.h"

#include <algorithm>
#include <array>
#include "autograd/autocast.h"
#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/gemm.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/gemm.h"
#include "autograd/kernels/reduce.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/strided_loop.h"

namespace ink {

namespace cpu {

// Each thread has columns of its own. A column is summed 64 rows at a time, and these sums are
// added up in double. y may have another dtype than x.
void sum_rows(Array& y, const Array& x, bool accumulate) {
  constexpr int64_t kRows = 64, kColumns = 64;
  const int64_t rows = x.size(0), cols = x.size(1);
  const int64_t row_stride = x.strides()[0], col_stride = x.strides()[1];
  std::byte* const out = writable_address_of(y);
  for_float("sum_rows", x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const T* in = x.data<T>();
    const int64_t blocks = (cols + kColumns - 1) / kColumns;
    const int64_t grain = kGrain / (kColumns * std::max<int64_t>(rows, 1)) + 1;
    parallel_for(blocks, grain, [&](int64_t first, int64_t last) {
      for (int64_t j0 = first * kColumns; j0 < std::min(last * kColumns, cols); j0 += kColumns) {
        const int64_t n = std::min(kColumns, cols - j0);
        double totals[kColumns] = {};
        for (int64_t i0 = 0; i0 < rows; i0 += kRows) {
          C sums[kColumns] = {};
          for (int64_t i = i0; i < std::min(i0 + kRows, rows); ++i) {
            const T* row = in + i * row_stride + j0 * col_stride;
            if (col_stride == 1) {
              for (int64_t j = 0; j < n; ++j) sums[j] += static_cast<C>(row[j]);
            } else {
              for (int64_t j = 0; j < n; ++j) sums[j] += static_cast<C>(row[j * col_stride]);
            }
          }
          for (int64_t j = 0; j < n; ++j) totals[j] += static_cast<double>(sums[j]);
        }
        std::byte* to = out + j0 * size_of(y.dtype());
        if (accumulate) {
          double before[kColumns];
          detail::conversion(f64, y.dtype())(before, to, n);
          for (int64_t j = 0; j < n; ++j) totals[j] += before[j];
        }
        detail::conversion(y.dtype(), f64)(to, totals, n);
      }
    });
  });
}

}  // namespace cpu

static Tensor linear_composed(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const DType dtype = autocast(x.dtype());
  const Tensor y = matmul(to(x, dtype), transpose(to(weight, dtype), 0, 1));
  return bias.defined() ? y + to(bias, dtype) : y;
}

// The gradient collected so far, or new memory for one.
static Tensor target(VjpContext& g, size_t i, const Shape& shape, const Options& options,
                     bool& accumulate) {
  Tensor gradient = g.sum_so_far(i);
  accumulate = gradient.defined();
  return accumulate ? gradient : empty(shape, options);
}

// On a GPU, the product that computes dW also sums the rows of dy, which it reads anyway.
void linear_parameters(VjpContext& g, Grads& grads, const Array& dy, const Array& x,
                       const std::array<DType, 3>& dtypes) {
  bool add_dw = false, add_db = false;
  Tensor &dw = grads[1], &db = grads[2];
  if (g.needs(2)) db = target(g, 2, {dy.size(-1)}, {dtypes[2], dy.device()}, add_db);
  if (g.needs(1)) {
    dw = target(g, 1, {dy.size(-1), x.size(-1)}, {dtypes[1], dy.device()}, add_dw);
    const Array across = dy.transposed(), rows = as_rows(x);
    if (db.defined() && !add_db && kernel::gemm_row_sums(dw, db, across, rows, add_dw)) return;
    kernel::gemm(dw, across, rows, add_dw);
  }
  if (db.defined()) kernel::sum_rows(db, dy, add_db);
}

Tensor linear_dx(VjpContext& g, size_t i, const Array& dy, const Array& weight, const Shape& shape,
                 DType dtype) {
  bool accumulate = false;
  const Tensor dx = target(g, i, shape, {dtype, dy.device()}, accumulate);
  Array rows = as_rows(dx);
  kernel::gemm(rows, dy, cached_cast(weight, dy.dtype()), accumulate);
  return dx;
}

static Tensor rows_of(const Tensor& x) { return reshape(x, as_rows(x).shape()); }

Grads linear_gradients(VjpContext& g, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Shape& shape, const std::array<DType, 3>& dtypes) {
  const Tensor rows = rows_of(dy);
  Grads grads(3);
  if (g.needs(0)) {
    const Tensor dx = matmul(rows, to(weight, dy.dtype()));
    grads[0] = to(reshape(dx, shape), dtypes[0]);
  }
  if (g.needs(1)) grads[1] = to(matmul(transpose(rows, 0, 1), rows_of(x)), dtypes[1]);
  if (g.needs(2)) grads[2] = to(sum(rows, {0}), dtypes[2]);
  return grads;
}

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  INK_CHECK(weight.dim() == 2, op, ": expected a weight (out, in), got ", weight.shape());
  INK_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1), op, ": expected x (..., ", weight.size(1),
            ") for weight ", weight.shape(), ", got ", x.shape());
  INK_CHECK(x.is_floating() && autocast(x.dtype()) == autocast(weight.dtype()), op,
            ": expected one floating dtype, got x ", x.dtype(), " and weight ", weight.dtype());
  if (!bias.defined()) return;
  INK_CHECK(bias.shape() == Shape{weight.size(0)}, op, ": expected bias ", Shape{weight.size(0)},
            " for weight ", weight.shape(), ", got ", bias.shape());
  INK_CHECK(autocast(bias.dtype()) == autocast(x.dtype()), op,
            ": expected one floating dtype, got x ", x.dtype(), " and bias ", bias.dtype());
}

Tensor linear_forward(const Array& x, const Array& weight, const Array& bias) {
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  const Tensor y = empty(shape, {x.dtype(), x.device()});
  Array rows = as_rows(y);
  kernel::gemm_bias(rows, as_rows(x), cached_cast(weight, x.dtype()).transposed(),
                    bias.defined() ? contiguous(bias) : bias);
  return y;
}

Tensor record_linear(const Tensor& x, const Tensor& in, const Tensor& weight, const Tensor& bias,
                     const Tensor& y) {
  const Saved saved_x = Saved::input(weight.requires_grad() ? in : Tensor()),
              saved_weight = Saved::input(x.requires_grad() ? weight : Tensor());
  const std::array dtypes{x.dtype(), weight.dtype(), bias.defined() ? bias.dtype() : y.dtype()};
  const auto vjp = [=, from = x.shape()](const Tensor& dy, VjpContext& g) {
    if (grad_enabled()) return linear_gradients(g, dy, *saved_x, *saved_weight, from, dtypes);
    const Array dy_rows = as_gemm_operand(as_rows(dy), dy.dtype());
    Grads grads(3);
    // The weight's comes first: if x is computed again for it, x is freed before dx is allocated.
    linear_parameters(g, grads, dy_rows, *saved_x, dtypes);
    if (g.needs(0)) grads[0] = linear_dx(g, 0, dy_rows, *saved_weight, from, dtypes[0]);
    return grads;
  };
  const char* shown = x.dim() == 2      ? bias.defined() ? "addmm" : "mm"
                      : !bias.defined() ? x.dim() == 1 ? "squeeze.4" : "unsafe_view"
                      : x.is_contiguous() && bias.is_contiguous() ? "unsafe_view"
                                                                  : "add";
  return shown_as(shown, record("linear", {x, weight, bias}, y, vjp));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& given_bias) {
  check_defined("linear", x, weight);
  Tensor bias = given_bias;
  if (bias.defined() && bias.dim() == 0 && weight.dim() == 2) bias = expand(bias, {weight.size(0)});
  const bool integers = !x.is_floating() && !weight.is_floating();
  if (weight.dim() == 1 || integers) {  // dim() == 1: one output, without a dimension
    INK_CHECK(weight.dim() == 2 || x.dim() != 2 || !bias.defined(),
              "linear: a weight of one dimension takes no bias, got ", bias.shape());
    INK_CHECK(weight.dim() >= 1 && x.dim() >= 1 && x.size(-1) == weight.size(-1),
              "linear: expected x (..., in) and a weight (out, in) or (in), got ", x.shape(),
              " and ", weight.shape());
    const Tensor y = matmul(x, weight.dim() == 2 ? transpose(weight, 0, 1) : weight);
    return bias.defined() ? y + bias : y;
  }
  check_linear("linear", x, weight, bias);
  if (composed()) return linear_composed(x, weight, bias);
  const DType dtype = autocast(x.dtype());
  const Tensor in = to(x, dtype);
  const Tensor y = record_linear(x, in, weight, bias, linear_forward(in, weight, bias));
  return given_bias.defined() && given_bias.dim() == 0 && x.dim() != 2 ? shown_as("add", y) : y;
}

}  // namespace ink
