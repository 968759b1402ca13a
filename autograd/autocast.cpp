#include "autograd/autocast.h"

#include <memory>
#include <mutex>

#include "autograd/base/context.h"
#include "autograd/kernels/copy.h"

namespace ink {
namespace {

// The elements of a storage rounded to bf16, as they were at a version of it.
struct Rounded {
  Array array;
  uint64_t version;
  uint64_t capture;  // the capture that it was made in (Context::capture)
};

constexpr uint64_t kNever = ~uint64_t{0};  // a version that no storage reaches

Rounded* rounded_of(const Array& x) { return static_cast<Rounded*>(x.storage()->attached.get()); }

bool is_current(const Rounded& rounded, const Array& x) {
  return rounded.version == x.storage()->version && rounded.capture == context().capture;
}

// The copy that x has its place in; null if there is none and x, a part of its storage, is better
// converted alone. The copy covers the whole storage, so that any view has its place in it.
Rounded* find_or_make(const Array& x) {
  Storage& memory = *x.storage();
  const int64_t n = memory.bytes / size_of(f32);
  if (memory.attached == nullptr && x.numel() >= n)
    memory.attached =
        std::make_shared<Rounded>(Rounded{Array::empty({n}, bf16, x.device()), kNever, 0});
  return rounded_of(x);
}

}  // namespace

Array cached_cast(const Array& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (x.dtype() == f32 && dtype == bf16 && !x.storage()->foreign()) {
    static std::mutex mutex;  // one thread refreshes a stale copy; others that need it wait
    const std::lock_guard lock(mutex);
    if (Rounded* rounded = find_or_make(x)) {
      if (!is_current(*rounded, x)) {
        const uint64_t version = x.storage()->version;  // before: a write meanwhile makes it stale
        kernel::copy(rounded->array, x.seen_as(rounded->array.layout()));
        rounded->version = version;
        rounded->capture = context().capture;
      }
      return rounded->array.seen_as(x.layout());
    }
  }
  return copied(x, dtype);
}

Array current_cast(const Array& x) {
  const Rounded* rounded = x.dtype() == f32 ? rounded_of(x) : nullptr;
  if (rounded == nullptr || !is_current(*rounded, x)) return {};
  return rounded->array.seen_as(x.layout());
}

void keep_cast(const Array& x) {
  Rounded& rounded = *rounded_of(x);
  rounded.version = x.storage()->version;
  rounded.capture = context().capture;
}

const void* cast_address(const Array& x) {
  const Rounded* rounded = rounded_of(x);
  return rounded == nullptr ? nullptr : rounded->array.storage()->data;
}

}  // namespace ink
