// Matrix products: by a unit of the processor (gemm/units.h), or by gemv and unpacked. Threads
// share the tiles of the result, and each tile is one serial call, so that the bits depend on the
// number of threads alone.
#include "autograd/gemm/gemm.h"

#include <algorithm>
#include <numeric>

#include "autograd/base/context.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/small_product.h"
#include "autograd/gemm/units.h"
#include "autograd/gemm/unpacked.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/gemm.h"
#include "autograd/loops/strided_loop.h"

namespace ink {

std::optional<MatrixLayout> matrix_layout(const Array& x) {
  const int64_t d = x.dim(), rows = x.shape()[d - 2], cols = x.shape()[d - 1];
  const int64_t row_stride = x.strides()[d - 2], col_stride = x.strides()[d - 1];
  if ((cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= std::max<int64_t>(cols, 1)))
    return MatrixLayout{false, rows == 1 ? std::max<int64_t>(cols, 1) : row_stride};
  if ((rows == 1 || row_stride == 1) && (cols == 1 || col_stride >= std::max<int64_t>(rows, 1)))
    return MatrixLayout{true, cols == 1 ? std::max<int64_t>(rows, 1) : col_stride};
  return {};
}

Array as_gemm_operand(const Array& x, DType dtype) {
  if (x.dtype() == dtype && matrix_layout(x)) return x;
  Layout once = x.layout();
  for (int64_t d = 0; d < x.dim() - 2; ++d) {
    if (once.strides[d] == 0) once.sizes[d] = 1;
  }
  Array copy = Array::empty(once.sizes, dtype, x.device());
  kernel::copy(copy, x.seen_as(once));
  Layout repeated = copy.layout();
  for (int64_t d = 0; d < x.dim() - 2; ++d) {
    if (once.sizes[d] != x.shape()[d]) repeated.strides[d] = 0;
  }
  repeated.sizes = x.shape();
  return copy.seen_as(repeated);
}

Array as_rows(const Array& x) {
  const int64_t n = x.size(-1);
  Shape leading = x.shape();
  leading.back() = 1;
  const Shape shape = {leading.numel(), n};
  const auto rows = x.reshaped(shape);
  return rows ? *rows : *contiguous(x).reshaped(shape);
}

int64_t batch_offset(const Array& x, int64_t index) {
  int64_t offset = 0;
  for (int64_t d = x.dim() - 3; d > 0; --d) {
    offset += index % x.shape()[d] * x.strides()[d];
    index /= x.shape()[d];
  }
  return x.dim() > 2 ? offset + index * x.strides()[0] : offset;
}

static const void* address(const Array& x) {
  return for_float("gemm", x.dtype(), [&]<class T>(T) -> const void* { return x.data<T>(); });
}

GemmOperand operand_of(const Array& x) { return {address(x), x.dtype(), *matrix_layout(x)}; }

GemmResult result_of(Array& c) {
  void* data =
      for_float("gemm", c.dtype(), [&]<class T>(T) -> void* { return c.mutable_data<T>(); });
  return {data, c.dtype(), matrix_layout(c)->ld};
}

namespace cpu {
namespace {

// How threads share a batch of products: each result is cut into grid.rows x grid.cols tiles.
struct Grid {
  int64_t rows, cols;
};

// The time of one product, in multiplications; reading an element takes as long as eight.
int64_t work_of(int64_t m, int64_t n, int64_t k) {
  return std::max<int64_t>(m * n * k, 8 * (m * k + k * n + m * n));
}

// The tiles of each matrix: as many as give `threads` equal shares, in the shape in which a tile
// reads the least of a and b. Products that are too small to be shared stay whole.
Grid choose_grid(int64_t batch, int64_t m, int64_t n, int64_t k, int64_t threads) {
  const double work = static_cast<double>(work_of(m, n, k)) * static_cast<double>(batch);
  const int64_t useful = static_cast<int64_t>(
      std::min(static_cast<double>(threads), 1 + work / static_cast<double>(kWorthAThread)));
  const int64_t tiles = batch >= 4 * useful ? 1 : useful / std::gcd(batch, useful);
  Grid best{1, tiles};
  for (int64_t rows = 1; rows <= tiles; ++rows) {
    const int64_t cols = tiles / rows;
    if (tiles % rows == 0 && m / rows + n / cols <= m / best.rows + n / best.cols)
      best = {rows, cols};
  }
  return best;
}

// Where part i of `parts` begins in a dimension of n, on multiples of the width of the kernels.
int64_t tile_begin(int64_t n, int64_t i, int64_t parts) {
  constexpr int64_t kWidth = 32;
  return std::min(n, (n * i / parts + kWidth - 1) / kWidth * kWidth);
}

// Rows i to i_end and columns j to j_end of result number `index`.
struct Tile {
  int64_t index, i, i_end, j, j_end;
};

struct Sharing {
  int64_t m, n, k, batch;
  Grid grid;
  int64_t threads;

  Sharing(int64_t matrices, int64_t rows, int64_t columns, int64_t inner)
      : m(rows),
        n(columns),
        k(inner),
        batch(matrices),
        grid(choose_grid(batch, m, n, k, max_threads())) {
    const int64_t tiles = grid.rows * grid.cols;
    const int64_t grain = tiles > 1 ? 1 : kWorthAThread / work_of(m, n, k) + 1;
    threads = std::min(max_threads(), (batch * tiles + grain - 1) / grain);
  }

  // f(tile, thread) for all tiles, in parallel.
  template <class F>
  void for_each_tile(F&& f) const {
    const int64_t tiles = grid.rows * grid.cols, items = batch * tiles;
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = items * begin / threads; item < items * end / threads; ++item) {
        if (tiles == 1) {  // without divisions, which take as long as a small product
          f(Tile{item, 0, m, 0, n}, begin);
          continue;
        }
        const int64_t row = item % tiles / grid.cols, col = item % grid.cols;
        f(Tile{item / tiles, tile_begin(m, row, grid.rows), tile_begin(m, row + 1, grid.rows),
               tile_begin(n, col, grid.cols), tile_begin(n, col + 1, grid.cols)},
          begin);
      }
    });
  }
};

// What a product is computed in: bf16 if one operand is. Its sums are in f32, as those of f32.
DType product_dtype(const Array& c, const Array& a, const Array& b) {
  if (c.dtype() == f64) return f64;
  return a.dtype() == bf16 || b.dtype() == bf16 ? bf16 : f32;
}

const GemmUnit& unit_for(DType dtype, int64_t m, int64_t n, int64_t k) {
  const GemmUnit* unit = gemm_unit(dtype);
  if (unit != nullptr && unit->pays != nullptr && !unit->pays(dtype, m, n, k))
    unit = gemm_unit(dtype, true);  // the best one for small products
  return unit != nullptr ? *unit : *openblas_unit();
}

// Can the unit write this result as it is?
bool fits(const GemmUnit& unit, const Array& c, DType dtype, int64_t k, bool accumulate) {
  if (!matrix_layout(c)) return false;
  return c.dtype() != bf16 || (unit.multiplies(dtype) && !accumulate && k <= kLongestBf16Inner);
}

void unit_products(const GemmUnit& unit, Array& c, const Array& a, const Array& b, bool accumulate,
                   const Array& bias) {
  const int64_t rows = c.size(-2), columns = c.size(-1);
  const Sharing sharing(c.numel() / (rows * columns), rows, columns, a.size(-1));
  const DType dtype = product_dtype(c, a, b);
  const int64_t bytes = unit.scratch_bytes(dtype, sharing.m, sharing.n, sharing.k);
  Array scratch = Array::empty({sharing.threads, bytes}, DType::boolean, cpu_device);
  bool* memory = scratch.mutable_data<bool>();
  const GemmOperand left = operand_of(a), right = operand_of(b);
  const GemmResult result = result_of(c);
  const char* row = bias.defined() ? static_cast<const char*>(address(bias)) : nullptr;
  sharing.for_each_tile([&](const Tile& tile, int64_t thread) {
    const auto [index, i, i_end, j, j_end] = tile;
    if (i == i_end || j == j_end) return;
    unit.product({i_end - i, j_end - j, sharing.k, left.at(batch_offset(a, index)).from(i, 0),
                  right.at(batch_offset(b, index)).from(0, j),
                  result.from(0, batch_offset(c, index)).from(i, j), accumulate,
                  row != nullptr ? row + j * size_of(bias.dtype()) : nullptr},
                 memory + thread * bytes);
  });
}

// Integers, which no unit multiplies. Rows are padded to whole vectors.
void integer_products(Array& c, const Array& a, const Array& b, bool accumulate) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1), width = whole_vectors<int64_t>(n);
  const auto unpadded = [](const Array& y, const Array& x) {  // y without what pads x's rows
    return y.seen_as({x.shape(), y.strides(), 0});
  };
  const auto padded = [&](const Array& x, bool copied) {
    if (width == n && x.is_contiguous()) return x;
    Shape shape = x.shape();
    shape.back() = width;
    Array y = Array::empty(shape, i64), elements = unpadded(y, x);
    if (copied && width > n) fill(y, 0);
    if (copied) copy(elements, x);
    return y;
  };
  const Array left = contiguous(a), right = padded(b, true);
  Array sums = padded(c, accumulate);
  const int64_t *x = left.data<int64_t>(), *y = right.data<int64_t>();
  int64_t* to = sums.mutable_data<int64_t>();
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  parallel_for(c.numel() / (m * n) * blocks, kWorthAThread / (kBlockRows * width * k + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const int64_t index = item / blocks, i = item % blocks * kBlockRows,
                                 row = index * m + i;
                   small_product<int64_t>(std::min<int64_t>(kBlockRows, m - i), k, width,
                                          {x + row * k, k, 1}, y + index * k * width, width,
                                          to + row * width, width, accumulate);
                 }
               });
  if (sums.storage() != c.storage()) copy(c, unpadded(sums, c));
}

// c = start + a b, where start is a row that is added to all, c itself (accumulate), or nothing.
void float_products(Array& c, const Array& a, const Array& b, bool accumulate, const Array& bias) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  const DType dtype = product_dtype(c, a, b);
  if (m == 1 || n == 1 || k == 0) {
    const Array rows = bias.defined() ? bias.expanded(c.shape()) : bias;
    return vector_products(c, a, b, accumulate ? c : rows);
  }
  const auto layout = matrix_layout(c);
  if (layout && layout->transposed && !bias.defined()) {
    Array turned = c.transposed();
    return float_products(turned, b.transposed(), a.transposed(), accumulate, bias);
  }
  if (unpacked_product(c, a, b, accumulate, bias)) return;
  const GemmUnit& unit = unit_for(dtype, m, n, k);
  const DType sums = dtype == f64 ? f64 : f32;
  if (!fits(unit, c, dtype, k, accumulate)) {
    Array result = Array::empty(c.shape(), sums, c.device());
    if (accumulate) copy(result, c);
    float_products(result, a, b, accumulate, bias);
    return copy(c, result);
  }
  if (bias.defined() && (bias.dtype() != sums || bias.strides()[0] != 1))
    return float_products(c, a, b, accumulate, copied(bias, sums));
  const auto operand = [&](const Array& x) {
    return as_gemm_operand(x, unit.multiplies(dtype) ? x.dtype() : sums);
  };
  unit_products(unit, c, operand(a), operand(b), accumulate, bias);
}

// The same, each row of c by itself (Strict).
void row_products(Array& c, const Array& a, const Array& b, bool accumulate, const Array& bias) {
  const auto row_of = [](const Array& x, int64_t i) { return part_along(x, x.dim() - 2, i, 1); };
  for (int64_t i = 0; i < c.size(-2); ++i) {
    Array row = row_of(c, i);
    const Array start = accumulate ? row : bias.defined() ? bias.expanded(row.shape()) : bias;
    vector_products(row, row_of(a, i), b, start);
  }
}

}  // namespace

void gemm(Array& c, const Array& a, const Array& b, bool accumulate) {
  if (c.numel() == 0) return;
  if (c.dtype() == i64) return integer_products(c, a, b, accumulate);
  if (context().strict) return row_products(c, a, b, accumulate, Array());
  float_products(c, a, b, accumulate, Array());
}

void gemm_bias(Array& c, const Array& a, const Array& b, const Array& bias) {
  if (c.numel() == 0) return;
  if (context().strict) return row_products(c, a, b, false, bias);
  float_products(c, a, b, false, bias);
}

}  // namespace cpu

}  // namespace ink
