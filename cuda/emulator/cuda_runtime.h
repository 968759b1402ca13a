// Replaces CUDA's header when the .cu files are compiled for the CPU: the keywords of the language,
// and the part of the runtime that inkling calls. See README.md beside it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <type_traits>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// ---- inside a kernel

struct CUstream_st;
namespace emulator {

/// A place in the source: std::source_location, which libc++ 14 lacks.
struct Where {
  const char* file = "";
  unsigned line = 0;
  static constexpr Where current(const char* file = __builtin_FILE(),
                                 unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

/// The running thread's place, which kernels read as threadIdx and so on.
struct Position {
  dim3 thread, block, block_size, grid_size;
};
extern Position position;

/// Before a warp goes on from a `late` one, others run at random.
enum class Collective : uint8_t { shuffle, sync, ballot, match, product, late };

/// Waits until all lanes of the warp are here with their `bytes` of value, then returns them: 32
/// values, 16 bytes apart times `slots`. It is an error if a lane calls another kind or from
/// another place.
const unsigned char* exchange(Collective kind, const void* value, size_t bytes, Where where);
void block_barrier(Where where);
/// Adds to the copies, in groups, that the calling thread has started and not waited for. From null
/// it copies zeros.
void copy_later(void* to, const void* from, size_t bytes);
void end_copies();
void finish_copies(int groups_left);

/// The running thread: its number in the block, the block's number, and how many barriers of the
/// block and __syncwarp of the warp lie behind it.
struct Moment {
  unsigned thread, block, barriers, syncs;
};
Moment moment();

/// Runs `thread` once in every thread of every block. op names the launch in errors.
void run_blocks(const char* op, dim3 blocks, int threads, size_t shared_bytes,
                const std::function<void(void*)>& thread);
/// The same as work of the device, as launches are.
void launch(const char* op, dim3 blocks, int threads, size_t shared_bytes, CUstream_st* stream,
            std::function<void(void*)> thread);
/// The card's compute capability, times ten.
int capability();
/// Runs `work`, which reads or writes device memory, as a launch would be: in order, or captured.
/// op names it.
void on_device(const char* op, std::function<void()> work);

inline constexpr size_t kSlot = 64;  // bytes a lane may exchange at once
template <class T>
T from_lane(const unsigned char* values, unsigned lane) {
  T value;
  std::memcpy(&value, values + lane * kSlot, sizeof(T));
  return value;
}

}  // namespace emulator

#define threadIdx (::emulator::position.thread)
#define blockIdx (::emulator::position.block)
#define blockDim (::emulator::position.block_size)
#define gridDim (::emulator::position.grid_size)

inline void __syncthreads(emulator::Where where = emulator::Where::current()) {
  emulator::block_barrier(where);
}
inline void __syncwarp(unsigned = ~0u, emulator::Where where = emulator::Where::current()) {
  emulator::exchange(emulator::Collective::sync, nullptr, 0, where);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, emulator::Where where = emulator::Where::current()) {
  const auto* all = emulator::exchange(emulator::Collective::shuffle, &value, sizeof(T), where);
  return emulator::from_lane<T>(all, (threadIdx.x % 32) ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, emulator::Where where = emulator::Where::current()) {
  const auto* all = emulator::exchange(emulator::Collective::shuffle, &value, sizeof(T), where);
  return emulator::from_lane<T>(all, static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta,
                 emulator::Where where = emulator::Where::current()) {
  const auto* all = emulator::exchange(emulator::Collective::shuffle, &value, sizeof(T), where);
  const unsigned lane = threadIdx.x % 32;
  return emulator::from_lane<T>(all, lane < delta ? lane : lane - delta);
}
inline unsigned __ballot_sync(unsigned, bool vote,
                              emulator::Where where = emulator::Where::current()) {
  const auto* all = emulator::exchange(emulator::Collective::ballot, &vote, 1, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) votes |= unsigned{all[lane * emulator::kSlot]} << lane;
  return votes;
}
template <class T>
unsigned __match_any_sync(unsigned, T value, emulator::Where where = emulator::Where::current()) {
  const auto* all = emulator::exchange(emulator::Collective::match, &value, sizeof(T), where);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    same |= unsigned{emulator::from_lane<T>(all, lane) == value} << lane;
  return same;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }

// Only one thread runs at a time.
inline void __threadfence() {}
template <class T>
T atomicAdd(T* address, T value) {
  static_assert(std::is_integral_v<T>, "sums of floats must not depend on the order of threads");
  const T before = *address;
  *address = before + value;
  return before;
}

// ---- outside

#define CUDART_VERSION 13000

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount, major, minor;
  size_t totalGlobalMem;
};

/// A stream. Launches and copies are done at once; only the work of a stand-in for another library
/// (push) may have to wait. All streams try to go on whenever an event is asked about.
struct CUstream_st {
  struct Work {
    std::function<bool()> may_run;
    std::function<void()> run;  // may touch device memory
  };
  void (*push)(CUstream_st* here, Work work);  // so that what is loaded need not find a symbol
  std::deque<Work> left;
  int device = 0;  // that was current when it was made
};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraph_st*;

const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
