// Device memory, copies, and graphs of the emulated GPU. The host cannot touch device memory:
// outside of launches and copies its pages are closed. So host code that reads a CUDA tensor's data
// stops with a segmentation fault, as on a GPU.
#include <cuda_runtime.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/memory/free_ranges.h"

struct CUevent_st {
  std::shared_ptr<bool> is_past = std::make_shared<bool>(true);
};
struct CUgraph_st {
  struct Node {
    const char* op;
    std::function<void()> work;
  };
  std::vector<Node> nodes;
};

namespace emulator {
namespace {

// What the environment sets of the emulated card.
int setting(const char* name, int usual) {
  const char* set = std::getenv(name);
  return set != nullptr ? std::atoi(set) : usual;
}
// Its memory; INKLING_EMULATED_MEMORY: in KB.
const size_t kMostMemory = static_cast<size_t>(setting("INKLING_EMULATED_MEMORY", 4 << 20)) << 10;
constexpr auto kNoKernelImage = static_cast<cudaError_t>(209);
constexpr size_t kGranule = 4096;
thread_local int device_here = 0;  // that is current

struct Gpu {
  std::recursive_mutex mutex;  // one launch at a time
  char* memory = static_cast<char*>(mmap(nullptr, std::max(kMostMemory, kGranule), PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  size_t end = 0, used = 0;        // the end of all bytes ever handed out; bytes in use
  std::map<void*, size_t> blocks;  // in use
  ink::FreeRanges free;
  std::unique_ptr<CUgraph_st> graph;  // being captured
  std::vector<std::unique_ptr<CUstream_st>> streams;
  Gpu() { free.put(memory, kMostMemory); }
};

Gpu& gpu() {
  static auto* only = new Gpu;
  return *only;
}

// Opens device memory while it lives.
class Open {
 public:
  Open() : lock_(gpu().mutex) { protect(PROT_READ | PROT_WRITE); }
  ~Open() { protect(PROT_NONE); }

 private:
  static void protect(int how) {
    if (gpu().end > 0) mprotect(gpu().memory, gpu().end, how);
  }
  std::lock_guard<std::recursive_mutex> lock_;
};

void push(CUstream_st* stream, CUstream_st::Work work) {
  const std::lock_guard lock(gpu().mutex);
  stream->left.push_back(std::move(work));
}

// What other libraries have put into streams, as far as it may be done. Is all of it done?
bool go_on() {
  const std::lock_guard lock(gpu().mutex);
  bool done = true;
  for (const auto& stream : gpu().streams) {
    auto& left = stream->left;
    for (; !left.empty() && left.front().may_run(); left.pop_front())
      if (left.front().run) on_device("another library", left.front().run);
    done = done && left.empty();
  }
  return done;
}

}  // namespace

void on_device(const char* op, std::function<void()> work) {
  static const bool dry = std::getenv("INKLING_EMULATED_DRY") != nullptr;
  Gpu& g = gpu();
  const std::lock_guard lock(g.mutex);
  if (g.graph) return g.graph->nodes.push_back({op, std::move(work)});
  if (dry) return;
  const Open open;
  work();
}

void launch(const char* op, dim3 blocks, int threads, size_t shared_bytes, CUstream_st* stream,
            std::function<void(void*)> thread) {
  INK_CHECK(stream->device == device_here, op, ": emulator: device ", device_here,
            " is current, and the stream is of device ", stream->device);
  on_device(op, [op, blocks, threads, shared_bytes, thread = std::move(thread)] {
    const size_t most = capability() >= 90 ? 227 * 1024 : 163 * 1024;
    INK_CHECK(shared_bytes <= most, op, ": emulator: ", shared_bytes,
              " bytes of shared memory; a block may have ", most);
    run_blocks(op, blocks, threads, shared_bytes, thread);
  });
}

}  // namespace emulator

using emulator::gpu;

const char* cudaGetErrorString(cudaError_t error) {
  if (error == emulator::kNoKernelImage)
    return "no kernel image is available for execution on the device";
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "invalid argument";
  }
}
// INKLING_EMULATED_DRIVER in the environment: the version of a driver that is too old, 0 for none.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulator::setting("INKLING_EMULATED_DRIVER", CUDART_VERSION);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  *count = driver >= CUDART_VERSION ? emulator::setting("INKLING_EMULATED_DEVICES", 1) : 0;
  return *count > 0 ? cudaSuccess : cudaErrorInsufficientDriver;
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  emulator::device_here = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulator::device_here;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  properties->multiProcessorCount = 4;
  properties->major = emulator::capability() / 10;
  properties->minor = emulator::capability() % 10;
  properties->totalGlobalMem = emulator::kMostMemory;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  *stream =
      gpu().streams.emplace_back(new CUstream_st{emulator::push, {}, emulator::device_here}).get();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (emulator::capability() >= 120) return emulator::kNoKernelImage;
  return gpu().graph ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(gpu().mutex);
  event->is_past = std::make_shared<bool>(stream->left.empty());
  if (!*event->is_past)
    emulator::push(stream, {[past = event->is_past] { return *past = true; }, {}});
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(gpu().mutex);
  emulator::go_on();
  return *event->is_past ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(gpu().mutex);
  if (!*event->is_past) emulator::push(stream, {[past = event->is_past] { return *past; }, {}});
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  auto& g = gpu();
  const std::lock_guard lock(g.mutex);
  const size_t size = (bytes + emulator::kGranule - 1) / emulator::kGranule * emulator::kGranule;
  char* const block = g.free.take(static_cast<int64_t>(size));
  if (block == nullptr) return cudaErrorMemoryAllocation;
  *memory = block;
  g.end = std::max(g.end, static_cast<size_t>(block - g.memory) + size);
  g.used += size;
  g.blocks.emplace(*memory, size);
  return cudaSuccess;
}
// It waits for all work of the GPU.
cudaError_t cudaFree(void* memory) {
  while (!emulator::go_on()) sched_yield();
  auto& g = gpu();
  const std::lock_guard lock(g.mutex);
  const auto found = g.blocks.find(memory);
  if (found == g.blocks.end()) return memory ? cudaErrorInvalidValue : cudaSuccess;
  g.used -= found->second;
  madvise(memory, found->second, MADV_DONTNEED);  // pages in use make opening and closing slow
  g.free.put(static_cast<char*>(memory), static_cast<int64_t>(found->second));
  g.blocks.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = emulator::kMostMemory - gpu().used;
  *total = emulator::kMostMemory;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  emulator::on_device("memcpy", [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  emulator::on_device("memset", [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  const std::lock_guard lock(gpu().mutex);
  if (gpu().graph) return cudaErrorInvalidValue;
  gpu().graph = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const std::lock_guard lock(gpu().mutex);
  *graph = gpu().graph.release();
  return *graph ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = gpu().graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraph_st(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  std::ofstream out(path);
  out << "digraph {\n";
  for (size_t i = 0; i < graph->nodes.size(); ++i)
    out << "node_" << i << "[label=\"" << graph->nodes[i].op << "\"]\n";
  out << "}\n";
  return out.flush() ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& [op, work] : exec->nodes) emulator::on_device(op, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
