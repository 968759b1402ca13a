// What the CUDA twins ask of the CUDA runtime: errors, the stream, moving bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "autograd/base/device.h"
#include "autograd/base/shape.h"

namespace ink::cuda {

/// Throws "softmax: cudaMallocHost: out of memory" unless the call succeeded.
void check(cudaError_t error, const char* op, const char* call);

inline constexpr int kMostDevices = 16;
/// The number of the calling thread's device.
int current_device();

/// The stream of the current device: everything of ours runs there, in order.
cudaStream_t stream();

/// Makes a device current for the calling thread; throws if there is none of that number.
void use(Device device);

/// The multiprocessors of the current device.
int multiprocessors();

/// Device memory with the step that random masks of a capture are drawn for (autograd/replay.h).
const uint64_t* step_cell();

/// What a kernel found amiss: faults.cuh notes the first, and the host throws its words when it
/// waits for the device. The pointers are the host's, and a kernel only carries them.
struct Fault {
  int found = 0;
  std::string (*words)(const Fault&) = nullptr;
  const char *op = nullptr, *name = nullptr, *of = nullptr;
  int64_t value = 0, position = 0, dim = 0;
  Shape sizes;
};
/// Where the current device's kernels note theirs: memory that host and device share.
Fault* fault_cell();

/// Is the current device's stream being captured into a graph, so that kernels are only noted?
bool capturing();

}  // namespace ink::cuda
