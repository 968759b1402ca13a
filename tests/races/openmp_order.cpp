// What happens before what in OpenMP, told to the thread sanitizer. libgomp is not compiled with
// it, so it does not see that a parallel region begins after what its caller did and ends before
// what the caller does next. The functions here stand before libgomp's of the same
// names: they announce the order, then call libgomp's.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

struct Region {
  void (*body)(void*);
  void* data;
  char begin = 0, end = 0, barrier = 0;  // only their addresses are used
};
thread_local Region* current = nullptr;  // the region whose body this thread runs

// The function of this name in libgomp.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void run(void* argument) {
  auto* region = static_cast<Region*>(argument);
  __tsan_acquire(&region->begin);
  Region* outer = current;
  current = region;
  region->body(region->data);
  current = outer;
  __tsan_release(&region->end);
}

}  // namespace

extern "C" {

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  static auto* const parallel = next<void(void (*)(void*), void*, unsigned, unsigned)>(__func__);
  Region region{body, data};
  __tsan_release(&region.begin);
  parallel(run, &region, threads, flags);
  __tsan_acquire(&region.end);
}

void GOMP_barrier() {
  static auto* const barrier = next<void()>(__func__);
  Region* region = current;
  if (region != nullptr) __tsan_release(&region->barrier);
  barrier();
  if (region != nullptr) __tsan_acquire(&region->barrier);
}

void GOMP_critical_name_start(void** name) {
  static auto* const start = next<void(void**)>(__func__);
  start(name);
  __tsan_acquire(name);
}

void GOMP_critical_name_end(void** name) {
  static auto* const end = next<void(void**)>(__func__);
  __tsan_release(name);
  end(name);
}

}  // extern "C"
