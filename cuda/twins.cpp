// Registers the CUDA kernels and the backend with the library. The symbol inkling_cuda brings this
// file into every program that links inkling::cuda; others contain nothing of CUDA.
#define CUDA_TWIN(name) \
  [[maybe_unused]] static const bool name##_entered = (twin::name = &cuda::name, true);
#include "autograd/kernels.h"
#include "autograd/memory/device_backend.h"

extern "C" void inkling_cuda() {}

namespace ink::cuda {
extern const DeviceBackend backend;  // runtime.cu
[[maybe_unused]] static const bool backend_entered = (cuda_backend = &backend, true);
}  // namespace ink::cuda
