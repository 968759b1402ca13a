// What the twins use of the CUDA runtime: errors, the stream, the device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "autograd/base/device.h"
#include "autograd/base/shape.h"

namespace ink::cuda {

/// Throws "softmax: cudaMallocHost: out of memory" unless the call succeeded.
void check(cudaError_t error, const char* op, const char* call);
#define INKLING_CUDA(op, function, ...) ::ink::cuda::check(function(__VA_ARGS__), op, #function)

inline constexpr int kMostDevices = 16;
/// The number of the calling thread's device.
int current_device();

/// The stream of the current device: all work of inkling runs there, in order.
cudaStream_t stream();

/// Makes a device current for the calling thread; throws if no device has that number.
void use(Device device);

/// The multiprocessors of the current device.
int multiprocessors();
/// Its compute capability's major number: 9 for Hopper.
int compute_capability();

/// Does a launch start before the one ahead of it has ended (programmatic dependent launch)? That
/// needs code for compute capability 9.0; INKLING_PDL=0 in the environment forbids it.
bool overlaps_launches();

/// kBlockCounts cells of device memory that are 0 between launches (is_last_block, launch.cuh).
inline constexpr int kBlockCounts = 4096;
unsigned* block_counts();

/// Device memory that holds the step for which a capture draws its random masks
/// (autograd/replay.h).
const uint64_t* step_cell();

/// Invalid input that a kernel met. ids.cuh records the first one, and the host throws its text
/// when it next waits for the device. The pointers point to host memory; kernels only copy them.
struct Fault {
  int found = 0;
  std::string (*words)(const Fault&) = nullptr;
  const char *op = nullptr, *name = nullptr, *of = nullptr;
  int64_t value = 0, position = 0, dim = 0;
  Shape sizes;
};
/// Where kernels of the current device record a fault: memory that host and device share.
Fault* fault_cell();

/// Is the current device's stream being captured into a graph, so that kernels do not run now?
bool capturing();

}  // namespace ink::cuda
