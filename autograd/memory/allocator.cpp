// The caching allocator: freed blocks are kept for reuse, so that a training loop that repeats its
// shapes asks the system for memory in its first steps only. Blocks are cut out of free ranges and
// merge with their free neighbours afterwards, so that memory freed in one size serves another: a
// process holds little more than it ever used at once. A small block merges late: until a range is
// cut for a large one, it waits for the next request of its size, which is served several times
// faster.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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
#define ASAN_RED_ZONE 64  // poisoned bytes after a small block, because a live one may follow
#else
#define ASAN_RED_ZONE 0
#define ASAN_POISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#endif

namespace ink {
namespace {

constexpr int64_t kAlignment = 64;
constexpr char kGuardByte = 0x5a;
constexpr int64_t kLarge = int64_t{1} << 16;  // from here on, blocks merge at once
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
int64_t bytes_to_next(int64_t step, const void* address) {
  const auto at = reinterpret_cast<intptr_t>(address);
  return round_up(at, step) - at;
}

// A size is rounded up to an eighth of its power of two, or to whole pages if that is less: at most
// 12.5 % is lost, and few distinct sizes remain.
int64_t rounded(int64_t bytes) {
  const int64_t size = std::max(bytes < kLarge ? bytes + ASAN_RED_ZONE : bytes, kAlignment);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  return round_up(size, std::clamp(power / 8, kAlignment, page_size()));
}

// Where the first mapping should go: at the start of a wide gap, so that the next ones can follow
// it and their free ranges merge. If the system decides otherwise, fewer of them merge.
char* start_of_gap() {
  const auto width = static_cast<size_t>(2 * physical_memory());
  void* gap = mmap(nullptr, width, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (gap == MAP_FAILED) return nullptr;
  munmap(gap, width);
  return static_cast<char*>(gap) + bytes_to_next(kHugePage, gap);
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
    void* block = take(size);
    if (block == nullptr) block = take_merged(bytes, size);
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
    if (size >= kLarge) return ranges_.put(static_cast<char*>(block), size);
    waiting(size).push_back(static_cast<char*>(block));
    widest_waits_ = std::max(widest_waits_, size);
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

  std::vector<char*>& waiting(int64_t size) {
    return waiting_[static_cast<size_t>(size / kAlignment)];
  }

  // A training step that repeats the first one's requests should fit into the memory that this one
  // took. So the places of large blocks should depend little on what an earlier step left behind.
  // Small blocks that wait would lie between them, so they merge before a range is cut for a large
  // one. The last range, which the next mapping widens, comes last, however wide it is by now.
  void* take(int64_t size) {
    if (size >= kLarge && widest_waits_ > 0 && !ranges_.has(size)) merge_waiting();
    if (size >= kLarge || waiting(size).empty()) return ranges_.take(size, end_);
    char* block = waiting(size).back();
    waiting(size).pop_back();
    return block;
  }

  // The system promises more memory than it has, and kills the process when it runs out. So a block
  // that cannot fit is refused here.
  void* take_merged(int64_t bytes, int64_t size) {
    merge_waiting();
    if (char* block = ranges_.take(size, end_)) return block;
    const auto fits = [&] { return size <= physical_memory() - stats_.bytes_held; };
    if (!fits()) flush();
    void* block = fits() ? map(size) : nullptr;
    INK_CHECK(block != nullptr, "memory: cannot allocate ", bytes,
              " bytes on cpu: ", stats_.bytes_in_use, " in use of ", physical_memory(),
              " bytes in the machine", fits() ? ", but a limit (ulimit -v) allows no more" : "",
              "; use a smaller batch, block or model");
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
      stats_.bytes_held += length;
      ++stats_.raw_allocations;
      end_ = static_cast<char*>(start) + length;
      ranges_.put(static_cast<char*>(start), length);
      if (char* block = ranges_.take(size)) return block;
    }
    return nullptr;
  }

  void merge_waiting() {
    for (int64_t size = kAlignment; size <= widest_waits_; size += kAlignment)
      for (auto& blocks = waiting(size); !blocks.empty(); blocks.pop_back())
        ranges_.put(blocks.back(), size);
    widest_waits_ = 0;
  }

  // Gives back all whole pages that are free.
  void flush() {
    merge_waiting();
    const auto ranges = ranges_.all();
    for (const auto& [start, size] : ranges) {
      const int64_t before = bytes_to_next(page_size(), start);
      const int64_t length = (size - before) / page_size() * page_size();
      if (length <= 0) continue;
      ASAN_UNPOISON_MEMORY_REGION(start + before, static_cast<size_t>(length));
      if (munmap(start + before, static_cast<size_t>(length)) != 0) continue;
      ranges_.cut(start + before, length);
      stats_.bytes_held -= length;
    }
  }

  std::mutex mutex_;
  FreeRanges ranges_;
  std::array<std::vector<char*>, kLarge / kAlignment> waiting_;  // small free blocks, by size
  int64_t widest_waits_ = 0;                                     // none is wider
  char* end_ = start_of_gap();                                   // of the last mapping
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
