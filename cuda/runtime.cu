// Errors, streams, and moving bytes between the host and the GPU.
#include "cuda/runtime.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/memory/device_backend.h"
#include "cuda/allocator.h"
#include "cuda/launch.cuh"

namespace ink::cuda {
namespace {

// The step is a kernel's argument and so part of the launch. No host memory has to stay alive.
struct SetStep {
  static constexpr int kThreads = kWarp;
  uint64_t* cell;
  uint64_t step;
  __device__ void operator()() const {
    if (threadIdx.x == 0) *cell = step;
  }
};

// The stream of a device, created at its first use.
struct Gpu {
  cudaStream_t stream = nullptr;
  cudaDeviceProp properties{};
  bool overlaps_launches = false;
  uint64_t* step = nullptr;  // on the device
  unsigned* block_counts = nullptr;
  Fault* fault = nullptr;
};

// A kernel's machine code waits for the launch before it only if it is of PTX 9.0 or newer, and not
// compiled by the driver from older PTX.
bool can_overlap_launches([[maybe_unused]] const cudaDeviceProp& properties) {
#ifdef INKLING_EMULATED
  return false;
#else
  const char* set = std::getenv("INKLING_PDL");
  cudaFuncAttributes compiled{};
  INKLING_CUDA("cuda", cudaFuncGetAttributes, &compiled, run<SetStep>);
  return properties.major >= 9 && compiled.ptxVersion >= 90 && (set == nullptr || set[0] != '0');
#endif
}

Gpu& gpu(int index) {
  static std::array<Gpu, kMostDevices> gpus;
  static std::array<std::once_flag, kMostDevices> once;
  const auto i = static_cast<size_t>(index);
  std::call_once(once[i], [&] {
    const cudaDeviceProp& card = gpus[i].properties;
    INKLING_CUDA("cuda", cudaGetDeviceProperties, &gpus[i].properties, index);
    INK_CHECK(card.major >= 8, "cuda:", index, ": ", std::string(card.name),
              " has compute capability ", card.major, ".", card.minor,
              "; inkling's kernels need 8.0 or newer (cards from 2020 on)");
    INKLING_CUDA("cuda", cudaStreamCreateWithFlags, &gpus[i].stream, cudaStreamNonBlocking);
    INKLING_CUDA("cuda", cudaMalloc, reinterpret_cast<void**>(&gpus[i].step), sizeof(uint64_t));
    constexpr size_t kCounts = kBlockCounts * sizeof(unsigned);
    INKLING_CUDA("cuda", cudaMalloc, reinterpret_cast<void**>(&gpus[i].block_counts), kCounts);
    INKLING_CUDA("cuda", cudaMemsetAsync, gpus[i].block_counts, 0, kCounts, gpus[i].stream);
    gpus[i].overlaps_launches = can_overlap_launches(gpus[i].properties);
    void* shared = nullptr;
    INKLING_CUDA("cuda", cudaMallocHost, &shared, sizeof(Fault));
    gpus[i].fault = new (shared) Fault;
  });
  return gpus[i];
}

// Pinned host memory in which uploads wait for the GPU, so that the caller does not wait. It is a
// ring of slots, each free again once its copy is done.
class Staging {
 public:
  static constexpr int64_t kSlotBytes = int64_t{4} << 20;

  void upload(void* to, const void* from, int64_t bytes, cudaStream_t on) {
    const std::lock_guard lock(mutex_);
    for (int64_t at = 0; at < bytes; at += kSlotBytes) {
      const auto n = static_cast<size_t>(std::min(kSlotBytes, bytes - at));
      Slot& slot = slots_[next_++ % slots_.size()];
      if (slot.memory == nullptr) {
        INKLING_CUDA("upload", cudaMallocHost, &slot.memory, kSlotBytes);
        INKLING_CUDA("upload", cudaEventCreateWithFlags, &slot.copied, cudaEventDisableTiming);
      } else {
        INKLING_CUDA("upload", cudaEventSynchronize, slot.copied);
      }
      std::memcpy(slot.memory, static_cast<const char*>(from) + at, n);
      INKLING_CUDA("upload", cudaMemcpyAsync, static_cast<char*>(to) + at, slot.memory, n,
                   cudaMemcpyHostToDevice, on);
      INKLING_CUDA("upload", cudaEventRecord, slot.copied, on);
    }
  }

 private:
  struct Slot {
    void* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };
  std::mutex mutex_;
  std::array<Slot, 8> slots_;
  size_t next_ = 0;
};

int count() {
  int found = 0;
  return cudaGetDeviceCount(&found) == cudaSuccess ? std::min(found, kMostDevices) : 0;
}

// CUDA reports a driver that is too old even if there is none.
std::string why_none() {
  int found = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  if (error == cudaSuccess || error == cudaErrorNoDevice) return "no NVIDIA GPU found";
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "no NVIDIA driver found (the CUDA toolkit alone has none; nvidia-smi shows whether one "
           "runs)";
  TextStream text;
  text << "its driver is of CUDA " << driver / 1000 << '.' << driver % 1000 / 10
       << "; this build of inkling needs one of CUDA " << CUDART_VERSION / 1000 << " or newer";
  return text.str();
}

void upload(void* to, const void* from, int64_t bytes, Device device) {
  static std::array<Staging, kMostDevices> staging;
  use(device);
  INK_CHECK(!capturing(), "upload: not while a step is being captured");
  staging[static_cast<size_t>(device.index)].upload(to, from, bytes, stream());
}

// Waits for the device, and throws the fault that a kernel recorded, if there is one.
void wait(Device device, const char* op) {
  INKLING_CUDA(op, cudaStreamSynchronize, stream());
  Fault& fault = *gpu(device.index).fault;
  if (fault.found == 0) return;
  const Fault was = std::exchange(fault, Fault());
  ink::detail::fail({was.words(was)});
}

void download(void* to, const void* from, int64_t bytes, Device device) {
  use(device);
  INK_CHECK(!capturing(), "download: the host reads a GPU's memory while a step is being captured");
  INKLING_CUDA("download", cudaMemcpyAsync, to, from, static_cast<size_t>(bytes),
               cudaMemcpyDeviceToHost, stream());
  wait(device, "download");
}

void synchronize(Device device) {
  use(device);
  wait(device, "synchronize");
}

const char* name(Device device) {
  use(device);  // what gpu() makes at the first call is of the current device
  return gpu(device.index).properties.name;
}

// ---- captures: CUDA graphs

struct Capture {
  cudaGraphExec_t graph;
  Allocator::Pool pool;
};
// For each device, the pool of the capture that is under way.
std::array<Allocator::Pool, kMostDevices> open_pools;

void begin_capture(Device device) {
  use(device);
  open_pools[static_cast<size_t>(device.index)] = allocator(device).open_pool();
  INKLING_CUDA("replay", cudaStreamSynchronize, stream());
  // Relaxed mode, because the allocator may call cudaMalloc meanwhile.
  INKLING_CUDA("replay", cudaStreamBeginCapture, stream(), cudaStreamCaptureModeRelaxed);
}

void* end_capture(Device device) {
  use(device);
  cudaGraph_t graph = nullptr;
  Capture capture{nullptr, std::exchange(open_pools[static_cast<size_t>(device.index)], {})};
  if (cudaStreamEndCapture(stream(), &graph) != cudaSuccess || graph == nullptr ||
      cudaGraphInstantiate(&capture.graph, graph, 0) != cudaSuccess)
    static_cast<void>(cudaGetLastError());
  if (const char* picture = std::getenv("INKLING_CUDA_GRAPH"); picture && capture.graph)
    static_cast<void>(cudaGraphDebugDotPrint(graph, picture, 0));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (capture.graph != nullptr) return new Capture(capture);
  allocator(device).close_pool(capture.pool);
  return nullptr;
}

void replay(void* captured, Device device) {
  use(device);
  INKLING_CUDA("replay", cudaGraphLaunch, static_cast<Capture*>(captured)->graph, stream());
}

void forget(void* captured, Device device) noexcept {
  if (captured == nullptr) return;
  const std::unique_ptr<Capture> owned(static_cast<Capture*>(captured));
  try {
    use(device);
    static_cast<void>(cudaStreamSynchronize(stream()));
    static_cast<void>(cudaGraphExecDestroy(owned->graph));
    allocator(device).close_pool(owned->pool);
  } catch (const Error&) {  // the device is lost, and what it held with it
  }
}

void set_step(uint64_t step, Device device) {
  use(device);
  launch("replay", 1, SetStep{gpu(device.index).step, step});
}

// ---- streams of other libraries; marks are events

void* new_stream(Device device) {
  use(device);
  cudaStream_t made = nullptr;
  INKLING_CUDA("stream", cudaStreamCreateWithFlags, &made, cudaStreamNonBlocking);
  return made;
}

void* mark(void* of, Device device) {
  use(device);
  cudaEvent_t event = nullptr;
  cudaStream_t const marked = of != nullptr ? static_cast<cudaStream_t>(of) : stream();
  INKLING_CUDA("stream", cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
  INKLING_CUDA("stream", cudaEventRecord, event, marked);
  return event;
}

void follow(void* other, void* mark) {
  auto* const event = static_cast<cudaEvent_t>(mark);
  INKLING_CUDA("stream", cudaStreamWaitEvent, static_cast<cudaStream_t>(other), event, 0);
  INKLING_CUDA("stream", cudaEventDestroy, event);
}

bool is_past(void* mark) {
  auto* const event = static_cast<cudaEvent_t>(mark);
  const cudaError_t state = cudaEventQuery(event);
  static_cast<void>(cudaGetLastError());  // "not ready" is none
  if (state == cudaErrorNotReady) return false;
  check(state, "stream", "cudaEventQuery");
  INKLING_CUDA("stream", cudaEventDestroy, event);
  return true;
}

}  // namespace

void check(cudaError_t error, const char* op, const char* call) {
  if (error == cudaSuccess) [[likely]]
    return;
  static_cast<void>(cudaGetLastError());  // clears it, so that the next call does not report it
  const char* advice = "";
  if (error == cudaErrorMemoryAllocation)
    advice = "; nvidia-smi shows which programs hold the card's memory";
  if (static_cast<int>(error) == 209)  // no kernel image for the device
    advice = "; configure with -DCMAKE_CUDA_ARCHITECTURES=native on the machine with the card";
  ink::detail::fail<DeviceError>({op, ": ", call, ": ", cudaGetErrorString(error), advice});
}

int current_device() {
  int index = 0;
  INKLING_CUDA("cuda", cudaGetDevice, &index);
  return index;
}

void use(Device device) {
  thread_local int current = -1;
  if (current == device.index) return;
  INKLING_CUDA("cuda", cudaSetDevice, device.index);
  current = device.index;
}

cudaStream_t stream() { return gpu(current_device()).stream; }
bool overlaps_launches() { return gpu(current_device()).overlaps_launches; }
unsigned* block_counts() { return gpu(current_device()).block_counts; }
const uint64_t* step_cell() { return gpu(current_device()).step; }
Fault* fault_cell() { return gpu(current_device()).fault; }
int compute_capability() { return gpu(current_device()).properties.major; }
int multiprocessors() { return gpu(current_device()).properties.multiProcessorCount; }

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  INKLING_CUDA("cuda", cudaStreamIsCapturing, stream(), &status);
  return status != cudaStreamCaptureStatusNone;
}

extern const DeviceBackend backend;
const DeviceBackend backend{
    .count = count,
    .why_none = why_none,
    .enter = use,
    .allocate = [](int64_t bytes, Device device) { return allocator(device).allocate(bytes); },
    .release = [](void* block, int64_t bytes,
                  Device device) noexcept { allocator(device).release(block, bytes); },
    .stats = [](Device device) { return allocator(device).stats(); },
    .reset_peak = [](Device device) { allocator(device).reset_peak(); },
    .empty_cache = [](Device device) { allocator(device).empty_cache(); },
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .name = name,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .replay = replay,
    .forget = forget,
    .set_step = set_step,
    .new_stream = new_stream,
    .mark = mark,
    .follow = follow,
    .is_past = is_past,
};

}  // namespace ink::cuda
