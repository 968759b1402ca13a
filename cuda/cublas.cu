// Matrix products by cuBLASLt. A matrix in rows is its transpose in columns, which is what cuBLAS
// works on: C = A B in rows is C^T = B^T A^T in columns, so the operands trade places.
#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "autograd/check.h"
#include "cuda/product.h"
#include "cuda/runtime.h"

namespace ink::cuda {
namespace {

// The library is half a gigabyte: it is loaded when the first product asks for it, not whenever a
// program starts.
void* open_library() {
  for (const char* name : {INKLING_CUBLASLT_NAME, INKLING_CUBLASLT_FILE}) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  ink::detail::fail("gemm: cannot load cuBLASLt: ", dlerror(), "; install CUDA ", CUBLAS_VER_MAJOR,
                    ", or name the folder of ", INKLING_CUBLASLT_NAME, " in LD_LIBRARY_PATH");
}

// A function of it, as a pointer to any type of function.
struct Symbol {
  const char* name;
  template <class F>
  operator F*() const {
    static void* const library = open_library();
    void* found = dlsym(library, name);
    INK_CHECK(found != nullptr, "gemm: ", INKLING_CUBLASLT_NAME, " has no ", name);
    return reinterpret_cast<F*>(found);
  }
};

// Its functions, under their names without the prefix.
struct CublasLt {
  decltype(cublasLtCreate)* Create = Symbol{"cublasLtCreate"};
  decltype(cublasLtGetStatusString)* GetStatusString = Symbol{"cublasLtGetStatusString"};
  decltype(cublasLtMatmul)* Matmul = Symbol{"cublasLtMatmul"};
  decltype(cublasLtMatmulAlgoGetHeuristic)* MatmulAlgoGetHeuristic =
      Symbol{"cublasLtMatmulAlgoGetHeuristic"};
  decltype(cublasLtMatmulDescCreate)* MatmulDescCreate = Symbol{"cublasLtMatmulDescCreate"};
  decltype(cublasLtMatmulDescDestroy)* MatmulDescDestroy = Symbol{"cublasLtMatmulDescDestroy"};
  decltype(cublasLtMatmulDescSetAttribute)* MatmulDescSetAttribute =
      Symbol{"cublasLtMatmulDescSetAttribute"};
  decltype(cublasLtMatmulPreferenceCreate)* MatmulPreferenceCreate =
      Symbol{"cublasLtMatmulPreferenceCreate"};
  decltype(cublasLtMatmulPreferenceDestroy)* MatmulPreferenceDestroy =
      Symbol{"cublasLtMatmulPreferenceDestroy"};
  decltype(cublasLtMatmulPreferenceSetAttribute)* MatmulPreferenceSetAttribute =
      Symbol{"cublasLtMatmulPreferenceSetAttribute"};
  decltype(cublasLtMatrixLayoutCreate)* MatrixLayoutCreate = Symbol{"cublasLtMatrixLayoutCreate"};
  decltype(cublasLtMatrixLayoutDestroy)* MatrixLayoutDestroy =
      Symbol{"cublasLtMatrixLayoutDestroy"};
  decltype(cublasLtMatrixLayoutSetAttribute)* MatrixLayoutSetAttribute =
      Symbol{"cublasLtMatrixLayoutSetAttribute"};
};
const CublasLt& lt() {
  static const CublasLt functions;
  return functions;
}

constexpr int64_t kWorkspace = int64_t{32} << 20;  // what NVIDIA advises for Hopper

void check(cublasStatus_t status, const Product& p, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  ink::detail::fail(p.op, ": ", call, ": ", lt().GetStatusString(status), ", for (", p.batch, ", ",
                    p.m, ", ", p.k, ") x (", p.k, ", ", p.n, ") of ", p.a.dtype, " into ",
                    p.c.dtype);
}

cudaDataType_t type_of(DType dtype) {
  return dtype == f64 ? CUDA_R_64F : dtype == bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// INKLING_TF32=1 in the environment: f32 products round their operands to 11 bits.
bool tf32() {
  static const bool on = [] {
    const char* value = std::getenv("INKLING_TF32");
    return value != nullptr && value[0] == '1';
  }();
  return on;
}

struct Destroy {
  void operator()(cublasLtMatrixLayout_t layout) const { lt().MatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulDesc_t operation) const { lt().MatmulDescDestroy(operation); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;

/// A matrix of `rows` x `cols` in columns: as it is stored.
Layout make_layout(const Product& p, const Matrices& x, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  if (x.layout.transposed) std::swap(rows, cols);
  // rows x cols in rows is cols x rows in columns.
  check(lt().MatrixLayoutCreate(&layout, type_of(x.dtype), static_cast<uint64_t>(cols),
                                static_cast<uint64_t>(rows), x.layout.ld),
        p, "cublasLtMatrixLayoutCreate");
  Layout owned(layout);
  const auto count = static_cast<int32_t>(p.batch);
  check(lt().MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                      sizeof count),
        p, "batch count");
  check(lt().MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.step,
                                      sizeof x.step),
        p, "batch step");
  return owned;
}

/// How cuBLASLt computes products of one kind.
struct Plan {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

/// Largest power of two up to 256 that divides an address.
int64_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<int64_t>(bits & (~bits + 1));
}

class Gpu {
 public:
  Gpu() {
    INK_CHECK(lt().Create(&handle_) == CUBLAS_STATUS_SUCCESS, "cublasLtCreate failed");
    cuda::check(cudaMalloc(&workspace_, kWorkspace), "cublas");
  }

  void run(const Product& p) {
    const std::lock_guard lock(mutex_);
    const Plan& plan = plan_for(p);
    if (p.bias != nullptr)
      check(lt().MatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                        &p.bias, sizeof p.bias),
            p, "bias");
    const double alpha = p.alpha, beta = p.accumulate ? 1 : 0;
    const auto alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
    const bool wide = p.c.dtype == f64;
    const void* scale = wide ? static_cast<const void*>(&alpha) : &alpha32;
    const void* keep = wide ? static_cast<const void*>(&beta) : &beta32;
    check(lt().Matmul(handle_, plan.operation.get(), scale, p.b.data, plan.b.get(), p.a.data,
                      plan.a.get(), keep, p.c.data, plan.c.get(), p.c.data, plan.c.get(),
                      &plan.algorithm, workspace_, kWorkspace, stream()),
          p, "cublasLtMatmul");
  }

 private:
  using Key = std::array<int64_t, 20>;

  static Key key_of(const Product& p) {
    return {p.m,
            p.n,
            p.k,
            p.batch,
            static_cast<int64_t>(p.a.dtype),
            static_cast<int64_t>(p.c.dtype),
            p.a.layout.transposed,
            p.a.layout.ld,
            p.a.step,
            p.b.layout.transposed,
            p.b.layout.ld,
            p.b.step,
            p.c.layout.ld,
            p.c.step,
            p.accumulate,
            p.bias != nullptr,
            alignment(p.a.data),
            alignment(p.b.data),
            alignment(p.c.data),
            alignment(p.bias)};
  }

  const Plan& plan_for(const Product& p) {
    const Key key = key_of(p);
    const auto known = plans_.find(key);
    return known != plans_.end() ? known->second : plans_.emplace(key, make_plan(p)).first->second;
  }

  Plan make_plan(const Product& p) {
    Plan plan{make_operation(p),
              make_layout(p, p.a, p.m, p.k),
              make_layout(p, p.b, p.k, p.n),
              make_layout(p, p.c, p.m, p.n),
              {}};
    cublasLtMatmulPreference_t wish = nullptr;
    check(lt().MatmulPreferenceCreate(&wish), p, "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      check(lt().MatmulPreferenceSetAttribute(wish, what, &value, sizeof value), p, "preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment(p.b.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment(p.a.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment(p.c.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment(p.c.data)));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        lt().MatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.b.get(), plan.a.get(),
                                    plan.c.get(), plan.c.get(), wish, 1, &found, &count);
    lt().MatmulPreferenceDestroy(wish);
    check(status, p, "cublasLtMatmulAlgoGetHeuristic");
    check(count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED, p,
          "cublasLtMatmulAlgoGetHeuristic");
    plan.algorithm = found.algo;
    return plan;
  }

  static Operation make_operation(const Product& p) {
    const cublasComputeType_t compute = p.a.dtype == f64             ? CUBLAS_COMPUTE_64F
                                        : p.a.dtype == f32 && tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t made = nullptr;
    check(lt().MatmulDescCreate(&made, compute, p.a.dtype == f64 ? CUDA_R_64F : CUDA_R_32F), p,
          "cublasLtMatmulDescCreate");
    Operation operation(made);
    const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      check(lt().MatmulDescSetAttribute(made, what, &value, sizeof value), p,
            "cublasLtMatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b.layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a.layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c.dtype));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    return operation;
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace

void product(const Product& p) {
  static std::array<std::unique_ptr<Gpu>, 16> gpus;
  static std::array<std::once_flag, 16> once;
  int index = 0;
  cuda::check(cudaGetDevice(&index), p.op);
  const auto i = static_cast<size_t>(index);
  std::call_once(once[i], [&] { gpus[i] = std::make_unique<Gpu>(); });
  gpus[i]->run(p);
}

}  // namespace ink::cuda
