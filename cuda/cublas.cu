// Matrix products by cuBLASLt. cuBLAS works on column-major matrices, and a row-major matrix is its
// transpose in column-major order. C = A B is computed as C^T = B^T A^T, so the operands swap
// places.
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/kernels/copy.h"
#include "autograd/loops/strided_loop.h"
#include "cuda/gemm_choices.h"
#include "cuda/product.h"
#include "cuda/runtime.h"

namespace ink::cuda {
namespace {

// The library has half a gigabyte, so it is loaded when the first product needs it.
void* open_library() {
  for (const char* name : {INKLING_CUBLASLT_NAME, INKLING_CUBLASLT_FILE}) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  ink::detail::fail<DeviceError>({"gemm: cannot load cuBLASLt: ", dlerror(), "; install CUDA ",
                                  CUBLAS_VER_MAJOR, ", or name the folder of ",
                                  INKLING_CUBLASLT_NAME, " in LD_LIBRARY_PATH"});
}

template <class F>
F* function_of_library(const char* name) {
  static void* const library = open_library();
  void* found = dlsym(library, name);
  INK_CHECK(found != nullptr, "gemm: ", INKLING_CUBLASLT_NAME, " has no ", name);
  return reinterpret_cast<F*>(found);
}

// A function of the library, named without its prefix.
#define INKLING_LT(name)                                                                        \
  ([] {                                                                                         \
    static auto* const found = function_of_library<decltype(cublasLt##name)>("cublasLt" #name); \
    return found;                                                                               \
  }())
// Calls it for a product, and checks the answer.
#define INKLING_LT_CALL(product, name, ...) \
  check(INKLING_LT(name)(__VA_ARGS__), product, "cublasLt" #name)

constexpr int64_t kWorkspace = int64_t{32} << 20;  // what NVIDIA advises for Hopper

void check(cublasStatus_t status, const Product& p, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  ink::detail::fail<DeviceError>({p.op, ": ", call, ": ", INKLING_LT(GetStatusString)(status),
                                  ", for (", p.batch, ", ", p.m, ", ", p.k, ") x (", p.k, ", ", p.n,
                                  ") of ", p.a.dtype, " into ", p.c.dtype});
}

cudaDataType_t type_of(DType dtype) {
  return dtype == f64 ? CUDA_R_64F : dtype == bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// INKLING_TF32=1 in the environment: f32 products round their operands to 11 bits.
bool tf32() {
  static const char* const value = std::getenv("INKLING_TF32");
  return value != nullptr && value[0] == '1';
}

struct Destroy {
  void operator()(cublasLtMatrixLayout_t layout) const { INKLING_LT(MatrixLayoutDestroy)(layout); }
  void operator()(cublasLtMatmulDesc_t operation) const {
    INKLING_LT(MatmulDescDestroy)(operation);
  }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;

/// The column-major layout of a row-major matrix of `rows` x `cols`.
Layout make_layout(const Product& p, const Matrices& x, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  if (x.layout.transposed) std::swap(rows, cols);
  // rows x cols in row-major order is cols x rows in column-major order.
  INKLING_LT_CALL(p, MatrixLayoutCreate, &layout, type_of(x.dtype), static_cast<uint64_t>(cols),
                  static_cast<uint64_t>(rows), x.layout.ld);
  Layout owned(layout);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t what, auto value) {
    INKLING_LT_CALL(p, MatrixLayoutSetAttribute, layout, what, &value, sizeof value);
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(p.batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.step);
  return owned;
}

/// How cuBLASLt computes products of one kind. It may be unable to only if there is an epilogue.
struct Plan {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  bool exists = true;
};

/// Algorithms for a product, the library's best guess first. (It is a plain array, because nvcc
/// fails on a vector of their type, which has no name.)
struct Candidates {
  static constexpr int kMost = 16;
  cublasLtMatmulHeuristicResult_t all[kMost];
  int count = 0;
};

/// Largest power of two up to 256 that divides an address.
int64_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// ---- choices by time: INKLING_GEMM_TUNE=FILE in the environment

/// Everything on which the choice of an algorithm may depend, in one line.
std::string describe(const Product& p) {
  TextStream text;
  text << p.batch << " of (" << p.m << ", " << p.k << ") x (" << p.k << ", " << p.n << "), "
       << p.a.dtype << " into " << p.c.dtype << (p.accumulate ? ", added" : "")
       << (p.a.dtype == f32 && tf32() ? ", tf32" : "");
  for (const Matrices* x : {&p.a, &p.b, &p.c})
    text << "; " << (x->layout.transposed ? "turned, " : "") << "rows " << x->layout.ld
         << ", matrices " << x->step << " apart, aligned to " << alignment(x->data);
  if (p.bias != nullptr) text << "; a bias aligned to " << alignment(p.bias);
  constexpr const char* kNames[] = {"", "; gelu", "; its gradient", "; sums of rows"};
  if (p.epilogue != Epilogue::none)
    text << kNames[static_cast<int>(p.epilogue)] << ", aligned to " << alignment(p.aux);
  return text.str();
}

/// The choices for the first card that asks; null for other cards, or without INKLING_GEMM_TUNE.
GemmChoices* choices_for(int device) {
  static const char* const file = std::getenv("INKLING_GEMM_TUNE");
  if (file == nullptr || file[0] == '\0') return nullptr;
  static const int first = device;
  static GemmChoices choices = [&] {
    cudaDeviceProp properties{};
    INKLING_CUDA("gemm", cudaGetDeviceProperties, &properties, device);
    return GemmChoices(file, std::string(properties.name) + ", cuBLASLt " +
                                 std::to_string(INKLING_LT(GetVersion)()));
  }();
  return device == first ? &choices : nullptr;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmChoices::Algorithm));

/// What a plan depends on.
auto key_of(const Product& p) {
  const auto of = [](const Matrices& x) {
    return std::tuple(x.dtype, x.layout.transposed, x.layout.ld, x.step, alignment(x.data));
  };
  return std::tuple(p.m, p.n, p.k, p.batch, of(p.a), of(p.b), of(p.c), p.accumulate,
                    p.bias != nullptr, alignment(p.bias), p.epilogue, alignment(p.aux));
}

class Gpu {
 public:
  explicit Gpu(int device)
      : device_{Device::CUDA, static_cast<int8_t>(device)}, choices_(choices_for(device)) {
    const cublasStatus_t status = INKLING_LT(Create)(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS)
      ink::detail::fail<DeviceError>(
          {"gemm: cublasLtCreate: ", INKLING_LT(GetStatusString)(status)});
    INKLING_CUDA("gemm", cudaMalloc, &workspace_, kWorkspace);
    INKLING_CUDA("gemm", cudaEventCreate, &start_);
    INKLING_CUDA("gemm", cudaEventCreate, &stop_);
  }

  void run(const Product& p) {
    const std::lock_guard lock(mutex_);
    const Plan& plan = plan_for(p);
    point(p, plan.operation.get());
    check(multiply(p, plan, plan.algorithm), p, "cublasLtMatmul");
  }

  bool has_epilogue(const Product& p) {
    if (!allows_epilogue(p) || !wants_epilogue(p, compute_capability() >= 9)) return false;
    const std::lock_guard lock(mutex_);
    return plan_for(p).exists;
  }

 private:
  cublasStatus_t multiply(const Product& p, const Plan& plan,
                          const cublasLtMatmulAlgo_t& algorithm) {
    const double alpha = 1, beta = p.accumulate ? 1 : 0;
    const auto alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
    const bool wide = p.c.dtype == f64;
    const void* scale = wide ? static_cast<const void*>(&alpha) : &alpha32;
    const void* keep = wide ? static_cast<const void*>(&beta) : &beta32;
    return INKLING_LT(Matmul)(handle_, plan.operation.get(), scale, p.b.data, plan.b.get(),
                              p.a.data, plan.a.get(), keep, p.c.data, plan.c.get(), p.c.data,
                              plan.c.get(), &algorithm, workspace_, kWorkspace, stream());
  }

  const Plan& plan_for(const Product& p) {
    const auto key = key_of(p);
    const auto known = plans_.find(key);
    return known != plans_.end() ? known->second : plans_.emplace(key, make_plan(p)).first->second;
  }

  Plan make_plan(const Product& p) {
    Plan plan{make_operation(p),
              make_layout(p, p.a, p.m, p.k),
              make_layout(p, p.b, p.k, p.n),
              make_layout(p, p.c, p.m, p.n),
              {}};
    const std::string name = choices_ ? describe(p) : "";
    if (choices_ && recall(plan, name)) return plan;
    const bool time_them = choices_ && !capturing();
    const Candidates candidates = ask_heuristic(p, plan, time_them ? Candidates::kMost : 1);
    plan.exists = candidates.count > 0;
    if (!plan.exists) return plan;
    plan.algorithm = candidates.all[0].algo;
    if (!time_them) return plan;
    plan.algorithm = fastest(p, plan, candidates);
    GemmChoices::Algorithm words;
    std::memcpy(words.data(), &plan.algorithm, sizeof words);
    choices_->keep(name, words);
    return plan;
  }

  /// Takes the algorithm that the file names for the product, if the library can run it.
  bool recall(Plan& plan, const std::string& name) {
    const auto words = choices_->find(name);
    if (!words) return false;
    std::memcpy(&plan.algorithm, words->data(), sizeof plan.algorithm);
    cublasLtMatmulHeuristicResult_t found{};
    return INKLING_LT(MatmulAlgoCheck)(handle_, plan.operation.get(), plan.b.get(), plan.a.get(),
                                       plan.c.get(), plan.c.get(), &plan.algorithm,
                                       &found) == CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= kWorkspace;
  }

  /// At most `most` algorithms that work. There may be none only if the product has an epilogue.
  Candidates ask_heuristic(const Product& p, const Plan& plan, int most) {
    cublasLtMatmulPreference_t wish = nullptr;
    INKLING_LT_CALL(p, MatmulPreferenceCreate, &wish);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      INKLING_LT_CALL(p, MatmulPreferenceSetAttribute, wish, what, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment(p.b.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment(p.a.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment(p.c.data)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment(p.c.data)));
    Candidates found;
    const cublasStatus_t status = INKLING_LT(MatmulAlgoGetHeuristic)(
        handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(), wish,
        most, found.all, &found.count);
    INKLING_LT(MatmulPreferenceDestroy)(wish);
    const bool may_fail = p.epilogue != Epilogue::none;
    if (may_fail &&
        (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE))
      return {};
    check(status, p, "cublasLtMatmulAlgoGetHeuristic");
    const auto works = [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; };
    found.count = static_cast<int>(
        std::stable_partition(found.all, found.all + found.count, works) - found.all);
    if (found.count == 0 && !may_fail)
      check(CUBLAS_STATUS_NOT_SUPPORTED, p, "cublasLtMatmulAlgoGetHeuristic");
    return found;
  }

  /// The fastest algorithm; a later one must be 2 % faster than the best before. Each is timed in
  /// three rounds, and its best counts, because a card's clock rises and falls meanwhile. Trial
  /// results go to the product's own memory, which is written again anyway; a product that
  /// accumulates gets scratch memory instead.
  cublasLtMatmulAlgo_t fastest(Product p, const Plan& plan, const Candidates& candidates) {
    constexpr int kRounds = 3;
    constexpr float kNever = std::numeric_limits<float>::infinity();
    Array spare;
    if (p.accumulate) {
      const int64_t room = (p.batch - 1) * p.c.step + (p.m - 1) * p.c.layout.ld + p.n;
      spare = Array::empty(Shape{room}, p.c.dtype, device_);
      cuda::fill(spare, 0);
      p.c.data = writable_address_of(spare);
    }
    const auto time_of = [&](const cublasLtMatmulAlgo_t& algorithm, int times) {
      float milliseconds = 0;
      INKLING_CUDA("gemm", cudaEventRecord, start_, stream());
      for (int i = 0; i < times; ++i)
        if (multiply(p, plan, algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
      INKLING_CUDA("gemm", cudaEventRecord, stop_, stream());
      INKLING_CUDA("gemm", cudaEventSynchronize, stop_);
      INKLING_CUDA("gemm", cudaEventElapsedTime, &milliseconds, start_, stop_);
      return milliseconds / static_cast<float>(times);
    };
    static_cast<void>(time_of(candidates.all[0].algo, 2));  // wakes the card
    const float guess = time_of(candidates.all[0].algo, 2);
    // Where the host's launches take longer than the product, all look alike, and the first stays.
    const int times = guess < 0.05f ? 50 : 5;  // guess: in ms
    std::array<float, Candidates::kMost> least;
    least.fill(kNever);
    for (int round = 0; round < kRounds; ++round) {
      for (int n = 0; n < candidates.count; ++n) {
        const cublasLtMatmulAlgo_t& algorithm = candidates.all[n].algo;
        if (time_of(algorithm, 1) == kNever) continue;  // warms up, too
        least[n] = std::min(least[n], time_of(algorithm, times));
      }
    }
    int best = 0;
    for (int n = 1; n < candidates.count; ++n)
      if (least[n] < 0.98f * least[best]) best = n;
    return candidates.all[best].algo;
  }

  static cublasLtEpilogue_t epilogue_of(const Product& p) {
    const bool bias = p.bias != nullptr;
    switch (p.epilogue) {
      case Epilogue::gelu:
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case Epilogue::gelu_gradient:
        return CUBLASLT_EPILOGUE_DGELU;
      case Epilogue::row_sums:  // A is the library's second operand
        return CUBLASLT_EPILOGUE_BGRADB;
      case Epilogue::none:
        break;
    }
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  template <class V>
  static void set(const Product& p, cublasLtMatmulDesc_t operation,
                  cublasLtMatmulDescAttributes_t what, V value) {
    INKLING_LT_CALL(p, MatmulDescSetAttribute, operation, what, &value, sizeof value);
  }
  /// Names the addresses beside A, B and C.
  static void point(const Product& p, cublasLtMatmulDesc_t operation) {
    if (p.bias != nullptr) set(p, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux != nullptr)
      set(p, operation,
          p.epilogue == Epilogue::row_sums ? CUBLASLT_MATMUL_DESC_BIAS_POINTER
                                           : CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
          p.aux);
  }

  static Operation make_operation(const Product& p) {
    const cublasComputeType_t compute = p.a.dtype == f64             ? CUBLAS_COMPUTE_64F
                                        : p.a.dtype == f32 && tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t made = nullptr;
    INKLING_LT_CALL(p, MatmulDescCreate, &made, compute,
                    p.a.dtype == f64 ? CUDA_R_64F : CUDA_R_32F);
    Operation operation(made);
    set(p, made, CUBLASLT_MATMUL_DESC_TRANSA, p.b.layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(p, made, CUBLASLT_MATMUL_DESC_TRANSB, p.a.layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const bool sums = p.epilogue == Epilogue::row_sums;
    if (p.bias != nullptr || sums)  // a bias and its gradient have D's type
      set(p, made, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c.dtype));
    point(p, made);
    if (p.epilogue != Epilogue::none && !sums)
      set(p, made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c.layout.ld);
    set(p, made, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    return operation;
  }

  std::mutex mutex_;
  Device device_;
  GemmChoices* choices_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;  // of what is timed
  std::map<decltype(key_of(Product())), Plan> plans_;
};

}  // namespace

static Gpu& current_gpu() {
  static std::array<std::unique_ptr<Gpu>, kMostDevices> gpus;
  static std::array<std::once_flag, kMostDevices> once;
  const auto i = static_cast<size_t>(current_device());
  std::call_once(once[i], [&] { gpus[i] = std::make_unique<Gpu>(static_cast<int>(i)); });
  return *gpus[i];
}

void product(const Product& p) { current_gpu().run(p); }
bool has_epilogue(const Product& p) { return current_gpu().has_epilogue(p); }

}  // namespace ink::cuda
