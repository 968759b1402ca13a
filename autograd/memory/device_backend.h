// What the library asks of a device other than the CPU, besides kernels: memory, and moving bytes.
#pragma once

#include <cstdint>
#include <string>

#include "autograd/base/device.h"
#include "autograd/memory/storage.h"

namespace ink {

/// A backend runs what it is asked for in the order of asking; only download and synchronize wait.
struct DeviceBackend {
  /// How many devices the machine has.
  int (*count)();
  /// Where there is none: "no NVIDIA driver found".
  std::string (*why_none)();
  /// Makes a device the one that kernels of the calling thread run on.
  void (*enter)(Device);
  void* (*allocate)(int64_t bytes, Device);
  void (*release)(void* block, int64_t bytes, Device) noexcept;
  MemoryStats (*stats)(Device);
  void (*reset_peak)(Device);
  void (*empty_cache)(Device);
  /// Copies bytes of the host's memory to the device's; they may change once this returns.
  void (*upload)(void* to, const void* from, int64_t bytes, Device);
  /// Copies bytes of the device's memory to the host's, when all before is done.
  void (*download)(void* to, const void* from, int64_t bytes, Device);
  /// Waits until the device has done all it was asked for, and throws what went wrong meanwhile.
  void (*synchronize)(Device);
  /// What the device calls itself: "NVIDIA H100 80GB HBM3".
  const char* (*name)(Device);
  /// From here on what the device is asked for is not done but captured (replay.h) ...
  void (*begin_capture)(Device);
  /// ... up to here. Returns the capture, to be given to replay and forget; null if it failed.
  /// Memory that was taken meanwhile belongs to the capture until it is forgotten.
  void* (*end_capture)(Device);
  void (*replay)(void* captured, Device);
  void (*forget)(void* captured, Device) noexcept;
  /// The step that random masks in a capture are drawn for, when it is replayed next.
  void (*set_step)(uint64_t step, Device);
};

/// The CUDA backend, set before main by the library inkling::cuda; null where that is not linked.
extern const DeviceBackend* cuda_backend;
/// The backend of a device that is not the CPU; throws if this program or this machine has none.
const DeviceBackend& backend_of(Device device);
/// The number of CUDA devices that this program can use: 0 without a CUDA backend.
int cuda_device_count();
/// Copies bytes from one device's memory to another's, by way of the host's where neither is its.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
/// Waits for a device; nothing to do for the CPU.
void synchronize(Device device);
/// "2 threads", or a GPU's name.
std::string describe(Device device);
/// How much to compute at a time where an op works through rows of something large: what the CPU's
/// caches hold; what has all processors of a GPU at work.
struct ChunkLimits {
  int64_t elements, rows;
};
ChunkLimits chunk_limits(Device device);
/// How many host threads are worth having to keep a device at work: one for a GPU.
int64_t host_threads(Device device);
/// How many steps to ask a device for before waiting, to see what one takes in training: a GPU
/// works while the host asks for more.
int64_t steps_ahead(Device device);

}  // namespace ink
