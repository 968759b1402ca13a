// What the CUDA twins ask of the CUDA runtime: errors, the stream, moving bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "autograd/device.h"

namespace ink::cuda {

/// Throws "softmax: CUDA: an illegal memory access was encountered" unless the call succeeded.
void check(cudaError_t error, const char* op);

/// The stream of the current device: everything of ours runs there, in order.
cudaStream_t stream();

/// Makes a device current for the calling thread; throws if there is none of that number.
void use(Device device);

/// The multiprocessors of the current device.
int multiprocessors();

/// Device memory with the step that random masks of a record are drawn for (replay.h).
const uint64_t* step_cell();

/// The first id that a kernel was to follow and could not; ids.cuh writes it, the host throws it
/// when it waits for the device.
struct BadId {
  int found = 0;
  const char *op = nullptr, *id_name = nullptr, *count_name = nullptr;
  int64_t id = 0, position = 0, count = 0;
};
/// That of the current device: memory that host and device share.
BadId* bad_id();

/// Is the current device's stream being recorded into a graph, and are kernels only noted?
bool capturing();

}  // namespace ink::cuda
