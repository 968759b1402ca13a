// Matrix products: by a unit of the processor (gemm/units.h) if there is one and the product is
// large enough, else by OpenBLAS. Threads share the tiles of the result, and each tile is one
// serial call. So OpenBLAS's own threads, which wait for one another in busy loops, stay idle, and
// the bits depend on the number of threads alone.
#include "autograd/gemm/gemm.h"

#include <cblas.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/units.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/gemm.h"

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
  for (int64_t d = x.dim() - 3; d >= 0; --d) {
    offset += index % x.shape()[d] * x.strides()[d];
    index /= x.shape()[d];
  }
  return offset;
}

namespace cpu {
namespace {

// cblas_sgemm and cblas_dgemm under one name, and so for gemv.
void blas_gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k,
               float alpha, const float* a, int lda, const float* b, int ldb, float beta, float* c,
               int ldc) {
  cblas_sgemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void blas_gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k,
               double alpha, const double* a, int lda, const double* b, int ldb, double beta,
               double* c, int ldc) {
  cblas_dgemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void blas_gemv(CBLAS_TRANSPOSE t, int m, int n, float alpha, const float* a, int lda,
               const float* x, int incx, float beta, float* y, int incy) {
  cblas_sgemv(CblasRowMajor, t, m, n, alpha, a, lda, x, incx, beta, y, incy);
}
void blas_gemv(CBLAS_TRANSPOSE t, int m, int n, double alpha, const double* a, int lda,
               const double* x, int incx, double beta, double* y, int incy) {
  cblas_dgemv(CblasRowMajor, t, m, n, alpha, a, lda, x, incx, beta, y, incy);
}

CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

// BLAS takes sizes and leading dimensions as 32-bit integers.
int blas_int(int64_t value) {
  INK_CHECK(value <= std::numeric_limits<int>::max(), "gemm: a matrix size or stride of ", value,
            " exceeds what BLAS can index");
  return static_cast<int>(value);
}

template <class T>
struct Matrix {
  T* data;
  MatrixLayout layout;

  T* at(int64_t row, int64_t col) const {
    return data + (layout.transposed ? col * layout.ld + row : row * layout.ld + col);
  }
  int64_t row_stride() const { return layout.transposed ? 1 : layout.ld; }
  int64_t col_stride() const { return layout.transposed ? layout.ld : 1; }
};

// y = alpha M x + beta y for the matrix M (rows, cols), or its transpose.
template <class T>
void gemv(const Matrix<const T>& matrix, int64_t rows, int64_t cols, bool transposed, double alpha,
          const T* x, int64_t incx, double beta, T* y, int64_t incy) {
  if (matrix.layout.transposed) std::swap(rows, cols);
  blas_gemv(flag(matrix.layout.transposed != transposed), blas_int(rows), blas_int(cols),
            static_cast<T>(alpha), matrix.data, blas_int(matrix.layout.ld), x, blas_int(incx),
            static_cast<T>(beta), y, blas_int(incy));
}

// One product, serial when called by several threads at once. A result that is stored transposed is
// requested in column-major order, which reverses all flags.
template <class T>
void product(int64_t m, int64_t n, int64_t k, double alpha, const Matrix<const T>& a,
             const Matrix<const T>& b, double beta, const Matrix<T>& c) {
  if (m == 0 || n == 0) return;
  if (m == 1)
    return gemv(b, k, n, true, alpha, a.data, a.col_stride(), beta, c.data, c.col_stride());
  if (n == 1)
    return gemv(a, m, k, false, alpha, b.data, b.row_stride(), beta, c.data, c.row_stride());
  const bool flip = c.layout.transposed;
  blas_gemm(flip ? CblasColMajor : CblasRowMajor, flag(a.layout.transposed != flip),
            flag(b.layout.transposed != flip), blas_int(m), blas_int(n), blas_int(k),
            static_cast<T>(alpha), a.data, blas_int(a.layout.ld), b.data, blas_int(b.layout.ld),
            static_cast<T>(beta), c.data, blas_int(c.layout.ld));
}

// How threads share a batch of products: each result is cut into grid.rows x grid.cols tiles.
struct Grid {
  int64_t rows, cols;
};

// The time of one product, in multiplications; reading an element takes as long as eight.
int64_t work_of(int64_t m, int64_t n, int64_t k) {
  return std::max<int64_t>(m * n * k, 8 * (m * k + k * n + m * n));
}

// The least work for which waking a thread pays: about 20 us.
constexpr int64_t kWorthAThread = 1 << 20;

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

  Sharing(const Array& c, int64_t inner)
      : m(c.size(-2)),
        n(c.size(-1)),
        k(inner),
        batch(c.numel() / (m * n)),
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
        const int64_t row = item % tiles / grid.cols, col = item % grid.cols;
        f(Tile{item / tiles, tile_begin(m, row, grid.rows), tile_begin(m, row + 1, grid.rows),
               tile_begin(n, col, grid.cols), tile_begin(n, col + 1, grid.cols)},
          begin);
      }
    });
  }
};

template <class T>
void blas_products(Array& c, const Array& a, const Array& b, double alpha, bool accumulate) {
  const MatrixLayout la = *matrix_layout(a), lb = *matrix_layout(b), lc = *matrix_layout(c);
  T* pc = c.mutable_data<T>();
  Sharing(c, a.size(-1)).for_each_tile([&](const Tile& tile, int64_t) {
    const Matrix<const T> ma{a.data<T>() + batch_offset(a, tile.index), la},
        mb{b.data<T>() + batch_offset(b, tile.index), lb};
    const Matrix<T> mc{pc + batch_offset(c, tile.index), lc};
    product<T>(tile.i_end - tile.i, tile.j_end - tile.j, a.size(-1), alpha, {ma.at(tile.i, 0), la},
               {mb.at(0, tile.j), lb}, accumulate ? 1 : 0, {mc.at(tile.i, tile.j), lc});
  });
}

bool row_major(const Array& x) {
  const auto layout = matrix_layout(x);
  return layout && !layout->transposed;
}

// The unit for a product of f32 and bf16 that is large enough to be packed, or null.
const GemmUnit* suitable_unit(const Array& c, const Array& a, const Array& b, double alpha,
                              bool accumulate) {
  constexpr int64_t kLeastSide = 16, kLeastWork = 1 << 16;
  const auto suits = [](const Array& x) {
    return (x.dtype() == f32 || x.dtype() == bf16) && matrix_layout(x);
  };
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1);
  const bool is_bf16 = a.dtype() == bf16 || b.dtype() == bf16;
  const bool suitable =
      alpha == 1 && std::min({m, n, k}) >= kLeastSide && m * n * k >= kLeastWork && suits(a) &&
      suits(b) && row_major(c) &&
      (c.dtype() == f32 || (c.dtype() == bf16 && is_bf16 && !accumulate && k <= kLongestBf16Inner));
  return suitable ? gemm_unit() : nullptr;
}

GemmOperand operand_of(const Array& x, int64_t index) {
  const bool is_bf16 = x.dtype() == bf16;
  const int64_t offset = batch_offset(x, index);
  const void* data = is_bf16 ? static_cast<const void*>(x.data<bfloat16>() + offset)
                             : static_cast<const void*>(x.data<float>() + offset);
  return {data, is_bf16, *matrix_layout(x)};
}

void unit_products(const GemmUnit& unit, Array& c, const Array& a, const Array& b, bool accumulate,
                   const Array& bias) {
  const Sharing sharing(c, a.size(-1));
  const bool to_bf16 = c.dtype() == bf16;
  char* pc = to_bf16 ? reinterpret_cast<char*>(c.mutable_data<bfloat16>())
                     : reinterpret_cast<char*>(c.mutable_data<float>());
  const int64_t ld = matrix_layout(c)->ld;
  const int64_t bytes = unit.scratch_bytes(sharing.m, sharing.n, sharing.k);
  Array scratch = Array::empty({sharing.threads, bytes}, DType::boolean, cpu_device);
  char* memory = reinterpret_cast<char*>(scratch.mutable_data<bool>());
  const float* added = bias.defined() ? bias.data<float>() : nullptr;
  sharing.for_each_tile([&](const Tile& tile, int64_t thread) {
    const int64_t rows = tile.i_end - tile.i, cols = tile.j_end - tile.j;
    const int64_t at = batch_offset(c, tile.index) + tile.i * ld + tile.j;
    const GemmProduct product{rows,
                              cols,
                              sharing.k,
                              operand_of(a, tile.index).from(tile.i, 0),
                              operand_of(b, tile.index).from(0, tile.j),
                              {pc + at * (to_bf16 ? 2 : 4), to_bf16, ld},
                              accumulate,
                              added == nullptr ? nullptr : added + tile.j};
    unit.product(product, memory + thread * bytes);
  });
}

// Plain loops over integers, which BLAS does not support.
void integer_products(Array& c, const Array& a, const Array& b, int64_t alpha, bool accumulate) {
  const int64_t m = c.size(-2), n = c.size(-1), k = a.size(-1), batch = c.numel() / (m * n);
  const int64_t *pa = a.data<int64_t>(), *pb = b.data<int64_t>();
  int64_t* pc = c.mutable_data<int64_t>();
  const auto row_stride = [](const Array& x) { return x.strides()[x.dim() - 2]; };
  const auto col_stride = [](const Array& x) { return x.strides()[x.dim() - 1]; };
  parallel_for(batch * m, kGrain / std::max<int64_t>(n * k, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t *x = pa + batch_offset(a, row / m) + row % m * row_stride(a),
                    *y = pb + batch_offset(b, row / m);
      int64_t* z = pc + batch_offset(c, row / m) + row % m * row_stride(c);
      for (int64_t j = 0; j < n; ++j) {
        int64_t total = 0;
        for (int64_t l = 0; l < k; ++l)
          total += x[l * col_stride(a)] * y[l * row_stride(b) + j * col_stride(b)];
        int64_t& to = z[j * col_stride(c)];
        to = alpha * total + (accumulate ? to : 0);
      }
    }
  });
}

}  // namespace

void gemm(Array& c, const Array& a, const Array& b, double alpha, bool accumulate) {
  if (c.numel() == 0) return;
  if (c.dtype() == i64) return integer_products(c, a, b, static_cast<int64_t>(alpha), accumulate);
  if (a.size(-1) == 0) {  // the empty sum
    if (!accumulate) fill(c, 0);
    return;
  }
  if (const GemmUnit* unit = suitable_unit(c, a, b, alpha, accumulate))
    return unit_products(*unit, c, a, b, accumulate, Array());
  const DType dtype = c.dtype() == f64 ? f64 : f32;
  if (c.dtype() != dtype || !matrix_layout(c)) {
    Array result = Array::empty(c.shape(), dtype, c.device());
    if (accumulate) copy(result, c);
    gemm(result, a, b, alpha, accumulate);
    return copy(c, result);
  }
  const Array left = as_gemm_operand(a, dtype), right = as_gemm_operand(b, dtype);
  if (dtype == f64) {
    blas_products<double>(c, left, right, alpha, accumulate);
  } else {
    blas_products<float>(c, left, right, alpha, accumulate);
  }
}

void gemm_bias(Array& c, const Array& a, const Array& b, const Array& bias) {
  if (c.numel() == 0) return;
  if (!bias.defined()) return gemm(c, a, b, 1, false);
  if (const GemmUnit* unit = suitable_unit(c, a, b, 1, false);
      unit != nullptr && bias.dtype() == f32)
    return unit_products(*unit, c, a, b, false, bias);
  Layout rows{c.shape(), c.strides(), bias.layout().offset};
  std::fill(rows.strides.begin(), rows.strides.end(), 0);
  rows.strides[c.dim() - 1] = bias.strides()[0];
  copy(c, bias.seen_as(rows));
  gemm(c, a, b, 1, true);
}

}  // namespace cpu

static const GemmUnit* choose_unit() {
  const char* set = std::getenv("INKLING_CPU_CAPABILITY");
  const std::string_view best = set != nullptr ? set : "amx";
  const std::array<std::pair<std::string_view, const GemmUnit* (*)()>, 3> units = {
      {{"amx", amx_unit}, {"avx512_bf16", avx512_bf16_unit}, {"avx512", avx512_unit}}};
  bool allowed = false;
  for (const auto& [name, unit] : units) {
    allowed = allowed || name == best;
    if (allowed && unit() != nullptr) return unit();
  }
  INK_CHECK(allowed || best == "default",
            "INKLING_CPU_CAPABILITY: expected amx, avx512_bf16, avx512 or default, got ", best);
  return nullptr;
}

const GemmUnit* gemm_unit() {
  static const GemmUnit* const best = choose_unit();
  return best;
}

void take_gemm_memory(int64_t threads) {
  static int64_t served = 1;  // threads with memory; the first gets it when OpenBLAS is loaded
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return;
  if (threads <= served) return;
  constexpr int64_t kMegabytes = 128 + 64 + 16;  // OpenBLAS's, and a thread's own heap and stack
  const auto bytes = static_cast<size_t>(((threads - served) * kMegabytes + 64) << 20);
  void* memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  INK_CHECK(memory != MAP_FAILED,
            "threads: the limit on the address space (ulimit -v) leaves less "
            "than the ",
            kMegabytes, " MB that each of ", threads,
            " threads needs; raise it, or choose fewer --threads");
  munmap(memory, bytes);
  served = threads;
  constexpr int n = 256;
  const std::vector<float> zeros(n * n);
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    std::vector<float> c(n * n);
    for (int i = 0; i < 4; ++i) {  // at the same time: OpenBLAS shares what is free
#pragma omp barrier
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, zeros.data(), n,
                  zeros.data(), n, 0, c.data(), n);
    }
  }
}

bool packs_operands(Device device) { return device.is_cpu(); }

std::string gemm_backend() {
  std::string version = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  version = version.substr(0, version.find(' ', version.find(' ') + 1));
  version += std::string(", ") + openblas_get_corename() + " kernels";
#ifdef INKLING_LEVEL  // a portable build: which of its libraries the loader picked
  version += "; row kernels for " INKLING_LEVEL;
#endif
  return gemm_unit() != nullptr ? gemm_unit()->name + ("; " + version) : version;
}

}  // namespace ink
