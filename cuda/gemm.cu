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

template <class F>
void* with_data(const Array& x, F&& f) {
  return for_any(x.dtype(), [&]<class T>(T) -> void* { return f.template operator()<T>(); });
}
Matrices matrices(const Array& x) {
  void* data = with_data(x, [&]<class T>() { return const_cast<T*>(x.data<T>()); });
  return {data, x.dtype(), *matrix_layout(x), 0};
}
void* address(const Array& x) { return matrices(*x.reshaped({1, x.numel()})).data; }
Matrices result(Array& x) {
  static_cast<void>(with_data(x, [&]<class T>() { return x.mutable_data<T>(); }));
  return matrices(x);
}
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
                                count,      accumulate,         {loop.sizes, loop.strides, first}};
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
  return {op,          c.size(-2),  c.size(-1), a.size(-1), 1,
          matrices(a), matrices(b), result(c),  accumulate, nullptr};
}

// A bias as products take it: contiguous, of c's dtype, at an aligned address.
Array as_product_bias(const Array& bias, DType dtype) {
  const Array row = contiguous(cached_cast(bias, dtype));
  if (reinterpret_cast<uintptr_t>(address(row)) % kBiasAlignment == 0) return row;
  Array aligned = Array::empty(row.shape(), dtype, row.device());
  copy(aligned, row);
  return aligned;
}

// Is c = a b one product with an epilogue that reads or writes aux?
bool one_product(const Array& c, const Array& a, const Array& aux) {
  return c.numel() > 0 && a.size(-1) > 0 && c.dim() == 2 && c.strides() == aux.strides();
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
  all.bias = address(row);
  for_batch(all, c, left, right);
}

bool gemm_gelu(Array& y, Array& h, const Array& a, const Array& b, const Array& bias) {
  const DType dtype = operand_dtype(y, a, b);
  if (!one_product(y, a, h) || !fits(y, dtype) || matrix_layout(y)->transposed) return false;
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype),
              row = bias.defined() ? as_product_bias(bias, y.dtype()) : bias;
  Product all = describe("gemm_gelu", y, left, right, false);
  all.bias = row.defined() ? address(row) : nullptr;
  all.epilogue = Epilogue::gelu;
  all.aux = result(h).data;
  if (!has_epilogue(all)) return false;
  product(all);
  return true;
}

bool gemm_gelu_backward(Array& dh, const Array& dy, const Array& w, const Array& h) {
  const DType dtype = operand_dtype(dh, dy, w);
  if (!one_product(dh, dy, h) || !fits(dh, dtype) || matrix_layout(dh)->transposed) return false;
  const Array left = as_gemm_operand(dy, dtype), right = as_gemm_operand(w, dtype);
  Product all = describe("gemm_gelu_backward", dh, left, right, false);
  all.epilogue = Epilogue::gelu_gradient;
  all.aux = matrices(h).data;
  if (!has_epilogue(all)) return false;
  product(all);
  return true;
}

bool gemm_row_sums(Array& c, Array& sums, const Array& a, const Array& b, bool accumulate) {
  const DType dtype = operand_dtype(c, a, b);
  if (c.numel() == 0 || a.size(-1) == 0 || c.dim() != 2 || sums.dtype() != c.dtype()) return false;
  if (!fits(c, dtype) || matrix_layout(c)->transposed || !sums.is_contiguous()) return false;
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype);
  Product all = describe("gemm_row_sums", c, left, right, accumulate);
  all.epilogue = Epilogue::row_sums;
  Array row = *sums.reshaped({1, sums.numel()});
  all.aux = result(row).data;
  if (!has_epilogue(all)) return false;
  product(all);
  return true;
}

}  // namespace ink::cuda
