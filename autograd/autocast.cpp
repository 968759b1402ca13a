#include "autograd/autocast.h"

#include <mutex>

#include "autograd/context.h"
#include "autograd/kernels.h"

namespace ink {

// The copy has the layout of all of the memory, so that any view of x is a view of it.
Tensor cached_cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x.detach();
  if (x.dtype() != f32 || dtype != bf16) return x.detach().to(dtype);
  static std::mutex mutex;  // threads that come for a stale copy wait for the one that makes it
  const std::lock_guard lock(mutex);
  Storage& memory = *x.storage();
  const int64_t n = memory.bytes / size_of(f32);
  const uint64_t version = memory.version, recording = context().recording;
  if (!memory.rounded || memory.rounded_version != version ||
      memory.rounded_recording != recording) {
    const Tensor wide(x.storage(), Layout{{n}, {1}, 0}, f32);
    Tensor narrow = memory.rounded ? Tensor(memory.rounded, wide.layout(), bf16)
                                   : empty({n}, {bf16, x.device()});
    kernel::copy(narrow, wide);
    memory.rounded = narrow.storage();
    memory.rounded_version = version;
    memory.rounded_recording = recording;
  }
  return {memory.rounded, x.layout(), bf16};
}

Tensor current_cast(const Tensor& x) {
  const Storage& memory = *x.storage();
  const bool current = x.dtype() == f32 && memory.rounded &&
                       memory.rounded_version == memory.version &&
                       memory.rounded_recording == context().recording;
  return current ? Tensor(memory.rounded, x.layout(), bf16) : Tensor();
}

void keep_cast(const Tensor& x) { x.storage()->rounded_version = x.storage()->version; }

}  // namespace ink
