#include "autograd/replay.h"

#include "autograd/device_backend.h"
#include "autograd/log.h"

namespace ink {

Replay::Replay(Device device, std::vector<Tensor> written)
    : device_(device), written_(std::move(written)), possible_(device.is_cuda()) {}

Replay::~Replay() {
  if (record_ != nullptr) backend_of(device_).forget(record_, device_);
}

void Replay::run(const std::function<void()>& work) {
  constexpr int64_t kAsItIs = 2;  // runs that make what later ones find: memory, plans of products
  if (!possible_ || !context().observers.empty()) return work();
  if (record_ == nullptr && ++runs_ > kAsItIs) record(work);
  if (record_ == nullptr) return work();
  backend_of(device_).set_step(context().random.step, device_);
  backend_of(device_).replay(record_, device_);
  touch();
}

void Replay::record(const std::function<void()>& work) {
  const DeviceBackend& backend = backend_of(device_);
  const Context before = context();
  touch();  // what was computed of them outside is computed again inside
  backend.begin_recording(device_);
  try {
    work();
    record_ = backend.end_recording(device_);
  } catch (const Error& error) {
    backend.forget(backend.end_recording(device_), device_);
    log_message("a step cannot be recorded and replayed, and is done op by op: ", error.what());
  }
  possible_ = record_ != nullptr;
  context() = before;
  empty_cache(device_);  // a record has memory of its own
}

void Replay::touch() {
  for (Tensor& x : written_)
    for_any(x.dtype(), [&]<class T>(T) { static_cast<void>(x.mutable_data<T>()); });
}

}  // namespace ink
