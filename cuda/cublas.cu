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
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/kernels/copy.h"
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
  decltype(cublasLtGetVersion)* GetVersion = Symbol{"cublasLtGetVersion"};
  decltype(cublasLtMatmul)* Matmul = Symbol{"cublasLtMatmul"};
  decltype(cublasLtMatmulAlgoCheck)* MatmulAlgoCheck = Symbol{"cublasLtMatmulAlgoCheck"};
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
  ink::detail::fail<DeviceError>({p.op, ": ", call, ": ", lt().GetStatusString(status), ", for (",
                                  p.batch, ", ", p.m, ", ", p.k, ") x (", p.k, ", ", p.n, ") of ",
                                  p.a.dtype, " into ", p.c.dtype});
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

/// The column-major layout of a row-major matrix of `rows` x `cols`.
Layout make_layout(const Product& p, const Matrices& x, int64_t rows, int64_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  if (x.layout.transposed) std::swap(rows, cols);
  // rows x cols in row-major order is cols x rows in column-major order.
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
    cuda::check(cudaGetDeviceProperties(&properties, device), "gemm", "cudaGetDeviceProperties");
    return GemmChoices(
        file, std::string(properties.name) + ", cuBLASLt " + std::to_string(lt().GetVersion()));
  }();
  return device == first ? &choices : nullptr;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmChoices::Algorithm));

/// Measures the time of the stream's work between start and stop.
class Timer {
 public:
  Timer() {
    cuda::check(cudaEventCreate(&start_), "gemm", "cudaEventCreate");
    cuda::check(cudaEventCreate(&stop_), "gemm", "cudaEventCreate");
  }
  ~Timer() {
    static_cast<void>(cudaEventDestroy(start_));
    static_cast<void>(cudaEventDestroy(stop_));
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start() { cuda::check(cudaEventRecord(start_, stream()), "gemm", "cudaEventRecord"); }
  float stop() {
    float milliseconds = 0;
    cuda::check(cudaEventRecord(stop_, stream()), "gemm", "cudaEventRecord");
    cuda::check(cudaEventSynchronize(stop_), "gemm", "cudaEventSynchronize");
    cuda::check(cudaEventElapsedTime(&milliseconds, start_, stop_), "gemm", "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

class Gpu {
 public:
  explicit Gpu(int device)
      : device_{Device::CUDA, static_cast<int8_t>(device)}, choices_(choices_for(device)) {
    const cublasStatus_t status = lt().Create(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS)
      ink::detail::fail<DeviceError>({"gemm: cublasLtCreate: ", lt().GetStatusString(status)});
    cuda::check(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, device), "gemm",
                "cudaDeviceGetAttribute");
    cuda::check(cudaMalloc(&workspace_, kWorkspace), "gemm", "cudaMalloc");
  }

  void run(const Product& p) {
    const std::lock_guard lock(mutex_);
    const Plan& plan = plan_for(p);
    const auto point = [&](cublasLtMatmulDescAttributes_t what, const void* where) {
      check(lt().MatmulDescSetAttribute(plan.operation.get(), what, &where, sizeof where), p,
            "cublasLtMatmulDescSetAttribute");
    };
    if (p.bias != nullptr) point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux != nullptr) point(aux_pointer(p), p.aux);
    check(multiply(p, plan, plan.algorithm), p, "cublasLtMatmul");
  }

  bool has_epilogue(const Product& p) {
    if (!allows_epilogue(p) || !wants_epilogue(p, major_ >= 9)) return false;
    const std::lock_guard lock(mutex_);
    return plan_for(p).exists;
  }

 private:
  using Key = std::array<int64_t, 22>;

  cublasStatus_t multiply(const Product& p, const Plan& plan,
                          const cublasLtMatmulAlgo_t& algorithm) {
    const double alpha = 1, beta = p.accumulate ? 1 : 0;
    const auto alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
    const bool wide = p.c.dtype == f64;
    const void* scale = wide ? static_cast<const void*>(&alpha) : &alpha32;
    const void* keep = wide ? static_cast<const void*>(&beta) : &beta32;
    return lt().Matmul(handle_, plan.operation.get(), scale, p.b.data, plan.b.get(), p.a.data,
                       plan.a.get(), keep, p.c.data, plan.c.get(), p.c.data, plan.c.get(),
                       &algorithm, workspace_, kWorkspace, stream());
  }

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
            alignment(p.bias),
            static_cast<int64_t>(p.epilogue),
            alignment(p.aux)};
  }

  const Plan& plan_for(const Product& p) {
    const Key key = key_of(p);
    const auto known = plans_.find(key);
    return known != plans_.end() ? known->second : plans_.emplace(key, make_plan(p)).first->second;
  }

  Plan make_plan(const Product& p) {
    Plan plan = describe_to_library(p);
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

  static Plan describe_to_library(const Product& p) {
    return {make_operation(p),
            make_layout(p, p.a, p.m, p.k),
            make_layout(p, p.b, p.k, p.n),
            make_layout(p, p.c, p.m, p.n),
            {}};
  }

  /// Takes the algorithm that the file names for the product, if the library can run it.
  bool recall(Plan& plan, const std::string& name) {
    const auto words = choices_->find(name);
    if (!words) return false;
    std::memcpy(&plan.algorithm, words->data(), sizeof plan.algorithm);
    cublasLtMatmulHeuristicResult_t found{};
    return lt().MatmulAlgoCheck(handle_, plan.operation.get(), plan.b.get(), plan.a.get(),
                                plan.c.get(), plan.c.get(), &plan.algorithm,
                                &found) == CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= kWorkspace;
  }

  /// At most `most` algorithms that work. There may be none only if the product has an epilogue.
  Candidates ask_heuristic(const Product& p, const Plan& plan, int most) {
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
    Candidates found;
    const cublasStatus_t status = lt().MatmulAlgoGetHeuristic(
        handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(), plan.c.get(), wish,
        most, found.all, &found.count);
    lt().MatmulPreferenceDestroy(wish);
    const bool refused =
        status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (refused && p.epilogue != Epilogue::none) return {};
    check(status, p, "cublasLtMatmulAlgoGetHeuristic");
    const auto works = [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; };
    found.count = static_cast<int>(
        std::stable_partition(found.all, found.all + found.count, works) - found.all);
    check(found.count > 0 || p.epilogue != Epilogue::none ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_NOT_SUPPORTED,
          p, "cublasLtMatmulAlgoGetHeuristic");
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
      p.c.data = for_any(p.c.dtype, [&]<class T>(T) -> void* { return spare.mutable_data<T>(); });
    }
    Timer timer;
    const auto time_of = [&](const cublasLtMatmulAlgo_t& algorithm, int times) {
      timer.start();
      for (int i = 0; i < times; ++i)
        if (multiply(p, plan, algorithm) != CUBLAS_STATUS_SUCCESS) return kNever;
      return timer.stop() / static_cast<float>(times);
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

  static cublasLtMatmulDescAttributes_t aux_pointer(const Product& p) {
    return p.epilogue == Epilogue::row_sums ? CUBLASLT_MATMUL_DESC_BIAS_POINTER
                                            : CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
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
    const bool sums = p.epilogue == Epilogue::row_sums;
    if (p.bias != nullptr || sums)  // a bias and its gradient have D's type
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.c.dtype));
    if (p.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.aux != nullptr) set(aux_pointer(p), p.aux);
    if (p.epilogue != Epilogue::none && !sums)
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c.layout.ld);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    return operation;
  }

  std::mutex mutex_;
  Device device_;
  int major_ = 0;  // of its compute capability
  GemmChoices* choices_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace

static Gpu& current_gpu(const char* op) {
  static std::array<std::unique_ptr<Gpu>, 16> gpus;
  static std::array<std::once_flag, 16> once;
  int index = 0;
  cuda::check(cudaGetDevice(&index), op, "cudaGetDevice");
  const auto i = static_cast<size_t>(index);
  std::call_once(once[i], [&] { gpus[i] = std::make_unique<Gpu>(index); });
  return *gpus[i];
}

void product(const Product& p) { current_gpu(p.op).run(p); }
bool has_epilogue(const Product& p) { return current_gpu(p.op).has_epilogue(p); }

}  // namespace ink::cuda
