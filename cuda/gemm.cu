// Matrix products: the twins of autograd/gemm/gemm.cpp. This file turns the tensors' strides into
// batches of matrices with leading dimensions; a library computes the products.
#include <algorithm>
#include <array>

#include "autograd/autocast.h"
#include "autograd/loops/strided_loop.h"
#include "cuda/elementwise.cuh"
#include "cuda/product.h"

namespace ink::cuda {
namespace {

Matrices matrices(const Array& x) { return {address_of(x), x.dtype(), *matrix_layout(x), 0}; }
void advance(Matrices& x, int64_t elements) {
  x.data = static_cast<char*>(x.data) + elements * size_of(x.dtype);
}

// Runs all products of a batch. One call takes those along the last dimensions that have one step,
// up to the most of a call.
void for_batch(Product all, const Array& c, const Array& a, const Array& b) {
  const auto scalars =
      [d = c.dim()](const Array& x) {  // of each row and column: a batch of scalars
        return first_of_lines(first_of_lines(x, d - 1), d - 2);
      };
  const Array c0 = scalars(c), a0 = scalars(a), b0 = scalars(b);
  const StridedLoop<3> loop(c0.shape(), {&c0, &a0, &b0});
  const int64_t batch = loop.sizes.back();
  all.c.step = loop.inner_stride(0);
  all.a.step = loop.inner_stride(1);
  all.b.step = loop.inner_stride(2);
  const int64_t calls = loop.sizes.numel() / batch;
  StridedLoop<3>::Position at(loop, 0);
  for (int64_t i = 0; i < calls; ++i, at.next()) {
    for (int64_t first = 0; first < batch; first += kMostMatrices) {
      Product one = all;
      one.batch = std::min(kMostMatrices, batch - first);
      advance(one.c, at.offsets[0] + first * one.c.step);
      advance(one.a, at.offsets[1] + first * one.a.step);
      advance(one.b, at.offsets[2] + first * one.b.step);
      product(one);
    }
  }
}

// Integers, which no library multiplies. Each thread computes an element.
struct IntegerProduct {
  static constexpr int kThreads = 256;
  int64_t* c;
  const int64_t *a, *b;
  int64_t k, a_col, b_row, count;
  bool accumulate;
  Places<3> places;  // of the elements of c, of a's first column's and of b's first row's

  __device__ void operator()() const {
    const int64_t i = global_thread();
    if (i >= count) return;
    const auto at = places.find(static_cast<uint32_t>(i));
    int64_t total = 0;
    for (int64_t l = 0; l < k; ++l) total += a[at[1] + l * a_col] * b[at[2] + l * b_row];
    c[at[0]] = total + (accumulate ? c[at[0]] : 0);
  }
};

void integer_products(Array& c, const Array& a, const Array& b, bool accumulate) {
  // Operands seen with c's shape: a has step 0 along c's columns, and b along its rows.
  const auto like_c = [&](const Array& x, int64_t fixed) {
    Layout layout{c.shape(), x.strides(), x.layout().offset};
    layout.strides[fixed] = 0;
    return x.seen_as(layout);
  };
  const int64_t d = c.dim();
  const Array rows = like_c(a, d - 1), cols = like_c(b, d - 2);
  const StridedLoop<3> all(c.shape(), {&c, &rows, &cols});
  int64_t* out = c.mutable_data<int64_t>();
  for_each_piece<3>(all, [&](const StridedLoop<3>& loop, const std::array<int64_t, 3>& first) {
    const int64_t count = loop.sizes.numel();
    const IntegerProduct kernel{out,        a.data<int64_t>(),  b.data<int64_t>(),
                                a.size(-1), a.strides()[d - 1], b.strides()[d - 2],
                                count,      accumulate,         {loop, first}};
    launch("gemm", blocks_for(count, IntegerProduct::kThreads), kernel);
  });
}

// The dtype in which both operands are multiplied.
DType operand_dtype(const Array& c, const Array& a, const Array& b) {
  if (c.dtype() == f64) return f64;
  return a.dtype() == bf16 || b.dtype() == bf16 ? bf16 : f32;
}

bool fits(const Array& c, DType operands) {
  return matrix_layout(c) && (c.dtype() == operands || (c.dtype() == f32 && operands == bf16));
}

Product describe(const char* op, Array& c, const Array& a, const Array& b, bool accumulate) {
  static_cast<void>(writable_address_of(c));
  return {op,          c.size(-2),  c.size(-1),  a.size(-1), 1,
          matrices(a), matrices(b), matrices(c), accumulate, nullptr};
}

// A bias as products take it: contiguous, of c's dtype, at an aligned address.
Array as_product_bias(const Array& bias, DType dtype) {
  const Array row = contiguous(cached_cast(bias, dtype));
  if (reinterpret_cast<uintptr_t>(address_of(row)) % kBiasAlignment == 0) return row;
  Array aligned = Array::empty(row.shape(), dtype, row.device());
  copy(aligned, row);
  return aligned;
}

// c = a b + bias, or c += a b, with an epilogue that reads or writes aux: true if one product did
// it.
bool fused(const char* op, Array& c, const Array& a, const Array& b, const Array& bias,
           bool accumulate, Epilogue epilogue, void* aux) {
  const DType dtype = operand_dtype(c, a, b);
  if (c.numel() == 0 || a.size(-1) == 0 || c.dim() != 2) return false;
  if (!fits(c, dtype) || matrix_layout(c)->transposed) return false;
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype),
              row = bias.defined() ? as_product_bias(bias, c.dtype()) : bias;
  Product all = describe(op, c, left, right, accumulate);
  all.bias = row.defined() ? address_of(row) : nullptr;
  all.epilogue = epilogue;
  all.aux = aux;
  if (!has_epilogue(all)) return false;
  product(all);
  return true;
}

}  // namespace

void gemm(Array& c, const Array& a, const Array& b, bool accumulate) {
  if (c.numel() == 0) return;
  if (c.dtype() == i64) return integer_products(c, a, b, accumulate);
  if (a.size(-1) == 0) {  // the empty sum
    if (!accumulate) fill(c, 0);
    return;
  }
  const DType dtype = operand_dtype(c, a, b);
  if (!fits(c, dtype)) {
    Array whole = Array::empty(c.shape(), dtype == bf16 ? f32 : dtype, c.device());
    if (accumulate) copy(whole, c);
    gemm(whole, a, b, accumulate);
    return copy(c, whole);
  }
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype);
  if (matrix_layout(c)->transposed) {  // then its transpose is not
    Array flipped = c.transposed();
    return for_batch(describe("gemm", flipped, right.transposed(), left.transposed(), accumulate),
                     flipped, right, left);
  }
  for_batch(describe("gemm", c, left, right, accumulate), c, left, right);
}

void gemm_bias(Array& c, const Array& a, const Array& b, const Array& bias) {
  if (c.numel() == 0) return;
  if (!bias.defined()) return gemm(c, a, b, false);
  const DType dtype = operand_dtype(c, a, b);
  const bool one_call =
      dtype != f64 && a.size(-1) > 0 && fits(c, dtype) && !matrix_layout(c)->transposed;
  if (!one_call) {
    Layout rows{c.shape(), c.strides(), bias.layout().offset};
    std::fill(rows.strides.begin(), rows.strides.end(), 0);
    rows.strides[c.dim() - 1] = bias.strides()[0];
    copy(c, bias.seen_as(rows));
    return gemm(c, a, b, true);
  }
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype),
              row = as_product_bias(bias, c.dtype());
  Product all = describe("gemm_bias", c, left, right, false);
  all.bias = address_of(row);
  for_batch(all, c, left, right);
}

bool gemm_gelu(Array& y, Array& h, const Array& a, const Array& b, const Array& bias) {
  return y.strides() == h.strides() &&
         fused("gemm_gelu", y, a, b, bias, false, Epilogue::gelu, writable_address_of(h));
}

bool gemm_gelu_backward(Array& dh, const Array& dy, const Array& w, const Array& h) {
  return dh.strides() == h.strides() && fused("gemm_gelu_backward", dh, dy, w, Array(), false,
                                              Epilogue::gelu_gradient, address_of(h));
}

bool gemm_row_sums(Array& c, Array& sums, const Array& a, const Array& b, bool accumulate) {
  return sums.dtype() == c.dtype() && sums.is_contiguous() &&
         fused("gemm_row_sums", c, a, b, Array(), accumulate, Epilogue::row_sums,
               writable_address_of(sums));
}

}  // namespace ink::cuda
