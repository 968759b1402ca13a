#include "autograd/memory/device_backend.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"

namespace ink {

constinit const DeviceBackend* cuda_backend = nullptr;

const DeviceBackend& backend_of(Device device) {
  const DeviceBackend* backend = cuda_backend;
  const int count = cuda_device_count();
  INK_CHECK(
      backend != nullptr, "device: ", device,
      " is not available: this program has no CUDA backend; build inkling where the CUDA toolkit "
      "(12 or newer) is installed, and link inkling::cuda");
  INK_CHECK(count > 0, "device: ", device, " is not available: ", backend->why_none());
  INK_CHECK(device.index < count, "device: ", device, " is not available: this machine has ", count,
            count == 1 ? " GPU, cuda:0" : " GPUs, numbered from 0");
  return *backend;
}

int cuda_device_count() {
  static const int count = [] { return cuda_backend == nullptr ? 0 : cuda_backend->count(); }();
  return count;
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return cpu_device;
  if (name == "cuda") return {Device::CUDA, 0};
  int8_t index = -1;
  const char *number = name.data() + std::min<size_t>(name.size(), 5),
             *end = name.data() + name.size();
  const bool known = name.rfind("cuda:", 0) == 0 && number != end &&
                     std::from_chars(number, end, index).ptr == end && index >= 0;
  INK_CHECK(known, "device: there is none called '", name, "'; expected cpu, cuda or cuda:N");
  return {Device::CUDA, index};
}

std::string describe(Device device) {
  if (device.is_cuda()) return backend_of(device).name(device);
  return std::to_string(max_threads()) + (max_threads() == 1 ? " thread" : " threads");
}

ChunkLimits chunk_limits(Device device) {
  if (device.is_cpu()) return {int64_t{1} << 24, 1024, 1};
  return {int64_t{1} << 28, int64_t{1} << 20, 8};
}

int64_t host_threads(Device device) { return device.is_cpu() ? max_threads() : 1; }

void transfer(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  if (from_device.is_cpu() && to_device.is_cpu()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else if (from_device.is_cpu()) {
    backend_of(to_device).upload(to, from, bytes, to_device);
  } else if (to_device.is_cpu()) {
    backend_of(from_device).download(to, from, bytes, from_device);
  } else {
    std::vector<char> host(static_cast<size_t>(bytes));
    transfer(host.data(), cpu_device, from, from_device, bytes);
    transfer(to, to_device, host.data(), cpu_device, bytes);
  }
}

void synchronize(Device device) {
  if (device.is_cuda()) backend_of(device).synchronize(device);
}

}  // namespace ink
