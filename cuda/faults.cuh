// Faults: invalid input that a kernel meets, such as an id out of range. The kernel skips it and
// records a fault. The host throws the first fault when it next waits for the device.
#pragma once

#include "cuda/launch.cuh"

namespace ink::cuda {

/// Records a fault, unless there is one already. to: fault_cell().
__device__ inline void note(Fault* to, Fault fault) {
  if (atomicAdd(&to->found, 1) != 0) return;
  fault.found = 1;
  *to = fault;
}

}  // namespace ink::cuda
