// What the library needs from a device other than the CPU, besides kernels: memory and copies.
#pragma once

#include <cstdint>
#include <string>

#include "autograd/base/device.h"
#include "autograd/memory/storage.h"

namespace ink {

/// A backend runs its work in the order of the calls; only download and synchronize wait for it.
struct DeviceBackend {
  /// How many devices the machine has.
  int (*count)();
  /// Why there is none, such as "no NVIDIA driver found".
  std::string (*why_none)();
  /// Makes kernels of the calling thread run on this device.
  void (*enter)(Device);
  void* (*allocate)(int64_t bytes, Device);
  void (*release)(void* block, int64_t bytes, Device) noexcept;
  MemoryStats (*stats)(Device);
  void (*reset_peak)(Device);
  void (*empty_cache)(Device);
  /// Copies bytes from the host to the device; the host's may change once this returns.
  void (*upload)(void* to, const void* from, int64_t bytes, Device);
  /// Copies bytes from the device to the host, after all earlier work.
  void (*download)(void* to, const void* from, int64_t bytes, Device);
  /// Waits until the device has done all its work, and throws if some of it failed.
  void (*synchronize)(Device);
  /// The device's name: "NVIDIA H100 80GB HBM3".
  const char* (*name)(Device);
  /// From here on, work for the device is captured (replay.h) instead of done ...
  void (*begin_capture)(Device);
  /// ... up to here. Returns the capture, for replay and forget; null if it failed. Memory that was
  /// allocated meanwhile belongs to the capture until it is forgotten.
  void* (*end_capture)(Device);
  void (*replay)(void* captured, Device);
  void (*forget)(void* captured, Device) noexcept;
  /// Sets the step for which the next replay draws the random masks of its capture.
  void (*set_step)(uint64_t step, Device);
  /// A stream for another library's work, which runs beside the device's own.
  void* (*new_stream)(Device);
  /// Marks the work that a stream has so far, or the device's own if it is null.
  void* (*mark)(void* stream, Device);
  /// What is put into the stream from now on begins after the marked work. Ends the mark.
  void (*follow)(void* stream, void* mark);
  /// Has the device done the marked work? Ends the mark if so.
  bool (*is_past)(void* mark);
};

/// The CUDA backend, set before main by the library inkling::cuda; null where that is not linked.
extern const DeviceBackend* cuda_backend;
/// The backend of a device that is not the CPU; throws if this program or this machine has none.
const DeviceBackend& backend_of(Device device);
/// The number of CUDA devices that this program can use: 0 without a CUDA backend.
int cuda_device_count();
/// Copies bytes from one device's memory to another's, through the host's if neither is the CPU.
void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
/// Waits for a device; nothing to do for the CPU.
void synchronize(Device device);
/// "2 threads", or a GPU's name.
std::string describe(Device device);
/// How much an op computes at a time when it works through the rows of something large: as much as
/// the CPU's caches hold, or as keeps all processors of a GPU busy. Products are fast if all sizes
/// are multiples of `multiple`.
struct ChunkLimits {
  int64_t elements, rows, multiple;
};
ChunkLimits chunk_limits(Device device);
/// How many host threads it takes to keep a device busy: one for a GPU.
int64_t host_threads(Device device);

}  // namespace ink
