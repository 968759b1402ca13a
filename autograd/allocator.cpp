// The caching allocator: freed blocks wait in lists by rounded size, so that a training loop that
// repeats its shapes asks the system for memory in its first steps only.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "autograd/check.h"
#include "autograd/storage.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#endif

namespace ink {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{1} << 21;
constexpr char kGuardByte = 0x5a;

// Sizes are rounded up to an eighth of their power of two: at most 12.5 % is lost, and few distinct
// sizes remain.
int64_t rounded(int64_t bytes) {
  const auto size = static_cast<uint64_t>(std::max<int64_t>(bytes, kAlignment));
  const uint64_t step = std::max<uint64_t>(std::bit_floor(size) / 8, kAlignment);
  return static_cast<int64_t>((size + step - 1) / step * step);
}

int64_t physical_memory() {
  static const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return bytes;
}

class CpuAllocator {
 public:
  void* allocate(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (guards_ > 0) return allocate_guarded(bytes);
    return allocate_plain(bytes);
  }

  void release(void* block, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (guarded_.erase(block) > 0) return release_guarded(block, bytes);
    release_plain(block, bytes);
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    flush();
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes_in_use = stats_.bytes_in_use;
  }
  void guard(int change) {
    const std::lock_guard lock(mutex_);
    guards_ += change;
    if (change > 0) overwritten_ = 0;
  }
  int64_t overwritten() {
    const std::lock_guard lock(mutex_);
    return overwritten_;
  }

 private:
  void* allocate_plain(int64_t bytes) {
    const int64_t size = rounded(bytes);
    void* block = take_cached(size);
    if (block == nullptr) block = take_new(bytes, size);
    stats_.bytes_in_use += size;
    stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
    ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, static_cast<size_t>(size - bytes));
#ifndef NDEBUG
    std::memset(block, 0xff, static_cast<size_t>(bytes));  // NaN in every floating dtype
#endif
    return block;
  }

  void release_plain(void* block, int64_t bytes) {
    const int64_t size = rounded(bytes);
    ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(size));
    stats_.bytes_in_use -= size;
    free_[size].push_back(block);
  }

  // Guard bytes: kAlignment of them on either side of the block.
  void* allocate_guarded(int64_t bytes) {
    char* front = static_cast<char*>(allocate_plain(bytes + 2 * kAlignment));
    std::memset(front, kGuardByte, kAlignment);
    std::memset(front + kAlignment + bytes, kGuardByte, kAlignment);
    guarded_.insert(front + kAlignment);
    return front + kAlignment;
  }
  void release_guarded(void* block, int64_t bytes) {
    char* front = static_cast<char*>(block) - kAlignment;
    const auto intact = [](const char* guard) {
      return std::all_of(guard, guard + kAlignment, [](char c) { return c == kGuardByte; });
    };
    overwritten_ += !(intact(front) && intact(front + kAlignment + bytes));
    release_plain(front, bytes + 2 * kAlignment);
  }

  void* take_cached(int64_t size) {
    const auto found = free_.find(size);
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  // The system promises more than it has, so what cannot fit is refused here rather than by a kill
  // later.
  void* take_new(int64_t bytes, int64_t size) {
    const auto fits = [&] { return size <= physical_memory() - stats_.bytes_held; };
    if (!fits()) flush();
    void* block = fits() ? from_system(size) : nullptr;
    INK_CHECK(block != nullptr, "memory: cannot allocate ", bytes,
              " bytes on cpu: ", stats_.bytes_in_use, " in use of ", physical_memory(),
              " bytes in the machine; use a smaller batch, block or model");
    stats_.bytes_held += size;
    ++stats_.raw_allocations;
    return block;
  }

  // Large blocks ask for huge pages: a page table entry for 2 MiB, in place of 512.
  static void* from_system(int64_t size) {
    const bool large = size >= kHugePage;
    void* block =
        std::aligned_alloc(static_cast<size_t>(large ? kHugePage : kAlignment), static_cast<size_t>(size));
    if (block != nullptr && large) madvise(block, static_cast<size_t>(size), MADV_HUGEPAGE);
    return block;
  }

  void flush() {
    for (auto& [size, blocks] : free_) {
      stats_.bytes_held -= size * static_cast<int64_t>(blocks.size());
      for (void* block : blocks) {
        ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(size));
        std::free(block);
      }
    }
    free_.clear();
  }

  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> free_;
  MemoryStats stats_;

  int guards_ = 0;  // MemoryGuards that live
  std::set<void*> guarded_;
  int64_t overwritten_ = 0;
};

// Never destroyed: tensors may live in other static objects.
CpuAllocator& cpu_allocator() {
  static auto* allocator = new CpuAllocator;
  return *allocator;
}

void check_cpu(Device device) {
  INK_CHECK(device.is_cpu(), "memory: this build of inkling has no backend for ", device);
}

}  // namespace

namespace detail {

void* allocate(int64_t bytes, Device device) {
  check_cpu(device);
  return cpu_allocator().allocate(bytes);
}

void release(void* block, int64_t bytes, Device) noexcept { cpu_allocator().release(block, bytes); }

}  // namespace detail

int64_t block_bytes(int64_t bytes) { return rounded(bytes); }

MemoryStats memory_stats(Device device) {
  check_cpu(device);
  return cpu_allocator().stats();
}
void reset_peak_memory(Device device) {
  check_cpu(device);
  cpu_allocator().reset_peak();
}
void empty_cache(Device device) {
  check_cpu(device);
  cpu_allocator().empty_cache();
}

MemoryGuard::MemoryGuard() { cpu_allocator().guard(+1); }
MemoryGuard::~MemoryGuard() { cpu_allocator().guard(-1); }
int64_t MemoryGuard::overwritten() const { return cpu_allocator().overwritten(); }

Storage::Storage(int64_t size, Device where)
    : data(detail::allocate(size, where)), bytes(size), device(where) {}

Storage::Storage(void* memory, int64_t size, Device where, Deleter deleter)
    : data(memory), bytes(size), device(where), deleter_(std::move(deleter)) {}

Storage::~Storage() {
  if (deleter_) {
    deleter_(data);
  } else {
    detail::release(data, bytes, device);
  }
}

}  // namespace ink
