// What kernels find amiss while nobody looks: an id that leads nowhere, a row that is not what it
// should be. The kernel goes on without it; the host throws the first when it next waits.
#pragma once

#include "cuda/launch.cuh"

namespace ink::cuda {

/// Notes a fault, unless one is noted already. to: fault_cell().
__device__ inline void note(Fault* to, Fault fault) {
  if (atomicAdd(&to->found, 1) != 0) return;
  fault.found = 1;
  *to = fault;
}

}  // namespace ink::cuda
