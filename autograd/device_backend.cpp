#include "autograd/device_backend.h"

#include "autograd/kernels.h"

namespace ink {

const DeviceBackend& backend_of(Device device) {
  const DeviceBackend* backend = cuda_backend();
  const int count = cuda_device_count();
  INK_CHECK(backend != nullptr, "device: ", device,
            " is not to be had: this build of inkling has no CUDA backend; build it where the CUDA "
            "toolkit (12 or newer) is installed");
  INK_CHECK(count > 0, "device: ", device, " is not to be had: no NVIDIA GPU and driver found");
  INK_CHECK(device.index < count, "device: ", device, " is not to be had: this machine has ", count,
            count == 1 ? " GPU, cuda:0" : " GPUs, numbered from 0");
  return *backend;
}

int cuda_device_count() {
  static const int count = [] {
    const DeviceBackend* backend = cuda_backend();
    return backend == nullptr ? 0 : backend->count();
  }();
  return count;
}

void synchronize(Device device) {
  if (device.is_cuda()) backend_of(device).synchronize(device);
}

}  // namespace ink
