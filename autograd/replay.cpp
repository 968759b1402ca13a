#include "autograd/replay.h"

#include <atomic>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/io/log.h"
#include "autograd/memory/device_backend.h"

namespace ink {

Replay::Replay(Device device, std::vector<Tensor> written)
    : device_(device), written_(std::move(written)), possible_(device.is_cuda()) {}

Replay::~Replay() { forget(); }

void Replay::run(const std::function<void()>& work, const std::vector<Tensor>& read) {
  constexpr int64_t kAsItIs = 2;  // runs before a capture: they allocate memory and plan products
  if (!possible_ || !context().observers.empty()) return work();
  if (std::vector<Place> now = places(read); now != places_) {
    forget();
    places_ = std::move(now);
    runs_ = 0;
  }
  if (captured_ != nullptr && copies() != copies_) {
    forget();
    runs_ = 0;
  }
  if (captured_ == nullptr && ++runs_ > kAsItIs) capture(work);
  if (captured_ == nullptr) return work();
  before_replay();
  backend_of(device_).set_step(context().random.step, device_);
  backend_of(device_).replay(captured_, device_);
  after_replay();
}

std::vector<Replay::Place> Replay::places(const std::vector<Tensor>& read) const {
  std::vector<Place> all;
  all.reserve(written_.size() + read.size());
  for (const std::vector<Tensor>* list : {&written_, &read})
    for (const Tensor& x : *list)
      if (x.defined()) all.push_back({x.storage()->data, x.layout(), x.dtype()});
  return all;
}

// The addresses of the bf16 copies that the capture reads or writes.
std::vector<const void*> Replay::copies() const {
  std::vector<const void*> all;
  for (const std::vector<Tensor>* list : {&rounded_, &kept_})
    for (const Tensor& x : *list) all.push_back(cast_address(x));
  return all;
}

// If the work throws, the capture is ended and dropped, so that the device executes again.
void Replay::capture(const std::function<void()>& work) {
  static std::atomic<uint64_t> captures = 0;
  const DeviceBackend& backend = backend_of(device_);
  const auto with_current_cast = [&] {
    std::vector<Tensor> found;
    for (const Tensor& x : written_)
      if (current_cast(x).defined()) found.push_back(x);
    return found;
  };
  rounded_ = with_current_cast();
  const ContextGuard restored;
  context().capture = ++captures;
  for (const Tensor& x : rounded_) keep_cast(x);  // current in this capture, too
  possible_ = false;                              // unless it ends well
  empty_cache(device_);                           // a capture has memory of its own
  try {
    backend.begin_capture(device_);
    work();
    captured_ = backend.end_capture(device_);
    kept_ = with_current_cast();
    copies_ = copies();
  } catch (const Error& error) {
    backend.forget(backend.end_capture(device_), device_);
    log_message("a step cannot be captured and replayed, and is done op by op: ", error.what());
  } catch (...) {
    backend.forget(backend.end_capture(device_), device_);
    throw;
  }
  possible_ = captured_ != nullptr;
  empty_cache(device_);  // of blocks that the work released meanwhile
}

void Replay::forget() {
  if (captured_ != nullptr) backend_of(device_).forget(std::exchange(captured_, nullptr), device_);
}

void Replay::before_replay() {
  for (const Tensor& x : rounded_) cached_cast(x, bf16);
}

void Replay::after_replay() {
  for (Tensor& x : written_)
    for_any(x.dtype(), [&]<class T>(T) { static_cast<void>(x.mutable_data<T>()); });
  for (const Tensor& x : kept_) keep_cast(x);
}

}  // namespace ink
