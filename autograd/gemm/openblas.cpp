// Products of f32 and f64 by OpenBLAS, for processors that no unit of our own knows.
#include <cblas.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "autograd/gemm/gemm.h"
#include "autograd/gemm/panels.h"
#include "autograd/gemm/units.h"

namespace ink {
namespace {

void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda,
               const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
void blas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a,
               int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

// BLAS takes sizes and leading dimensions as 32-bit integers.
int blas_int(int64_t value) {
  INK_CHECK(value <= std::numeric_limits<int>::max(), "gemm: a matrix size or stride of ", value,
            " exceeds what BLAS can index");
  return static_cast<int>(value);
}

CBLAS_TRANSPOSE flag(const GemmOperand& x) {
  return x.layout.transposed ? CblasTrans : CblasNoTrans;
}

template <class T>
void multiply(const GemmProduct& p) {
  T* c = static_cast<T*>(p.c.data);
  for (int64_t i = 0; i < p.m && p.bias != nullptr; ++i)
    std::copy_n(static_cast<const T*>(p.bias), p.n, c + i * p.c.ld);
  blas_gemm(flag(p.a), flag(p.b), blas_int(p.m), blas_int(p.n), blas_int(p.k),
            static_cast<const T*>(p.a.data), blas_int(p.a.layout.ld),
            static_cast<const T*>(p.b.data), blas_int(p.b.layout.ld),
            p.accumulate || p.bias != nullptr ? T{1} : T{0}, c, blas_int(p.c.ld));
}

// While it lives, OpenBLAS starts no threads of its own. gemm.cpp calls it from several threads at
// once, or for products that are too small to be shared; and its threads wait for one another in
// busy loops, for ever if OpenMP gives it fewer than it asks for (OMP_THREAD_LIMIT, OMP_DYNAMIC).
// What is set is OpenMP's number for the calling thread. openblas_set_num_threads() would change
// the whole program's, and some versions ignore it.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = omp_get_max_threads();
};

void product(const GemmProduct& p, void*) {
  const OneThread alone;
  p.c.dtype == f64 ? multiply<double>(p) : multiply<float>(p);
}

double keep_busy(DType dtype, int64_t rounds) {
  return dtype == f64 ? multiply_adds<double, 16>(rounds) : multiply_adds<float, 16>(rounds);
}

}  // namespace

const GemmUnit* openblas_unit() {
  static const GemmUnit unit{"default",
                             "OpenBLAS",
                             [](DType dtype) { return dtype != bf16; },
                             nullptr,
                             [](DType, int64_t, int64_t, int64_t) { return int64_t{0}; },
                             product,
                             nullptr,
                             keep_busy};
  return &unit;
}

void take_gemm_memory(int64_t threads) {
  static int64_t served = 1;  // threads with memory; the first gets it when OpenBLAS is loaded
  if (gemm_unit(f32) != openblas_unit() && gemm_unit(f64) != openblas_unit()) return;
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
    const OneThread alone;
    std::vector<float> c(n * n);
    for (int i = 0; i < 4; ++i) {  // at the same time: OpenBLAS shares what is free
#pragma omp barrier
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, zeros.data(), n,
                  zeros.data(), n, 0, c.data(), n);
    }
  }
}

std::string openblas_version() {
  std::string version = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  version = version.substr(0, version.find(' ', version.find(' ') + 1));
  return version + ", " + openblas_get_corename() + " kernels";
}

}  // namespace ink
