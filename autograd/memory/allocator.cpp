// The caching allocator: freed blocks are kept for reuse, so that a training loop that repeats its
// shapes asks the system for memory in its first steps only. Small ones wait in lists by rounded
// size. Large ones are whole pages, cut out of free ranges and merged with their free neighbours
// afterwards, so that memory freed in one size serves another: a process holds little more than it
// ever used at once.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/memory/device_backend.h"
#include "autograd/memory/free_ranges.h"
#include "autograd/memory/storage.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#endif

namespace ink {
namespace {

constexpr int64_t kAlignment = 64;
constexpr char kGuardByte = 0x5a;
constexpr int64_t kLarge = int64_t{1} << 16;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t page_size() {
  static const int64_t bytes = sysconf(_SC_PAGE_SIZE);
  return bytes;
}
int64_t physical_memory() {
  static const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * page_size();
  return bytes;
}

int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

// Large sizes are whole pages, cut from mappings of huge pages. Small ones are rounded up to an
// eighth of their power of two: at most 12.5 % is lost, and few distinct sizes remain.
int64_t rounded(int64_t bytes) {
  if (bytes >= kLarge) return round_up(bytes, page_size());
  const int64_t size = std::max(bytes, kAlignment);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  return round_up(size, std::max(power / 8, kAlignment));
}

// Where the first mapping should go: at the start of a wide gap, so that the next ones can follow
// it and their free ranges merge. If the system decides otherwise, fewer of them merge.
char* start_of_gap() {
  const auto width = static_cast<size_t>(2 * physical_memory());
  void* gap = mmap(nullptr, width, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (gap == MAP_FAILED) return nullptr;
  munmap(gap, width);
  const auto address = reinterpret_cast<uintptr_t>(gap);
  return static_cast<char*>(gap) + (kHugePage - address % kHugePage) % kHugePage;
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
    if (size >= kLarge) {
      ranges_.put(static_cast<char*>(block), size);
    } else {
      free_[size].push_back(block);
    }
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
    if (size >= kLarge) return ranges_.take(size);
    const auto found = free_.find(size);
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }

  // The system promises more memory than it has, and kills the process when it runs out. So a block
  // that cannot fit is refused here.
  void* take_new(int64_t bytes, int64_t size) {
    const auto fits = [&] { return size <= physical_memory() - stats_.bytes_held; };
    if (!fits()) flush();
    void* block = !fits() ? nullptr : size >= kLarge ? map(size) : new_small(size);
    INK_CHECK(block != nullptr, "memory: cannot allocate ", bytes,
              " bytes on cpu: ", stats_.bytes_in_use, " in use of ", physical_memory(),
              " bytes in the machine; use a smaller batch, block or model");
    return block;
  }

  void* new_small(int64_t size) {
    void* block = std::aligned_alloc(kAlignment, static_cast<size_t>(size));
    if (block != nullptr) hold(size);
    return block;
  }

  // Maps as much as the free range at the end of the last mapping lacks, or the whole size if the
  // system puts the mapping elsewhere.
  void* map(int64_t size) {
    for (const int64_t missing : {size - ranges_.ending_at(end_), size}) {
      const int64_t length = round_up(missing, kHugePage);
      void* start = mmap(end_, static_cast<size_t>(length), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (start == MAP_FAILED) return nullptr;
      madvise(start, static_cast<size_t>(length), MADV_HUGEPAGE);  // a hint
      ASAN_POISON_MEMORY_REGION(start, static_cast<size_t>(length));
      hold(length);
      end_ = static_cast<char*>(start) + length;
      ranges_.put(static_cast<char*>(start), length);
      if (char* block = ranges_.take(size)) return block;
    }
    return nullptr;
  }

  void hold(int64_t size) {
    stats_.bytes_held += size;
    ++stats_.raw_allocations;
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
    for (const auto& [start, size] : ranges_.all()) {
      stats_.bytes_held -= size;
      ASAN_UNPOISON_MEMORY_REGION(start, static_cast<size_t>(size));
      munmap(start, static_cast<size_t>(size));
    }
    ranges_.clear();
  }

  std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> free_;  // small blocks, by size
  FreeRanges ranges_;                           // large ones
  char* end_ = start_of_gap();                  // of the last mapping
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

}  // namespace

namespace detail {

void* allocate(int64_t bytes, Device device) {
  if (device.is_cuda()) return backend_of(device).allocate(bytes, device);
  return cpu_allocator().allocate(bytes);
}

void release(void* block, int64_t bytes, Device device) noexcept {
  if (device.is_cuda()) return backend_of(device).release(block, bytes, device);
  try {
    cpu_allocator().release(block, bytes);
  } catch (const std::bad_alloc&) {  // no memory to list the block as free: it stays unused
  }
}

}  // namespace detail

int64_t block_bytes(int64_t bytes) { return rounded(bytes); }

MemoryStats memory_stats(Device device) {
  if (device.is_cuda()) return backend_of(device).stats(device);
  return cpu_allocator().stats();
}
void reset_peak_memory(Device device) {
  if (device.is_cuda()) return backend_of(device).reset_peak(device);
  cpu_allocator().reset_peak();
}
void empty_cache(Device device) {
  if (device.is_cuda()) return backend_of(device).empty_cache(device);
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
