#include "cuda/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "cuda/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) (static_cast<void>(start), static_cast<void>(size))
#endif

namespace ink::cuda {
namespace {

constexpr int64_t kGranule = 512;                   // blocks are rounded up to multiples of this
constexpr int64_t kSegment = int64_t{64} << 20;     // the usual least size of a segment
constexpr int64_t kSegmentStep = int64_t{2} << 20;  // segments are multiples of this

int64_t round_up(int64_t bytes, int64_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

int64_t Allocator::rounded(int64_t bytes) const {
  return direct_ ? std::max<int64_t>(bytes, 1) : round_up(std::max<int64_t>(bytes, 1), kGranule);
}

void* Allocator::allocate(int64_t bytes) {
  use(device_);
  const bool captured = capturing();
  const std::lock_guard lock(mutex_);
  const Pool pool = captured ? last_pool_ : kEager;
  const int64_t size = rounded(bytes);
  char* block = direct_ ? nullptr : free_[pool].take(size);
  if (block == nullptr && !add_segment(pool, size)) {
    flush();
    size_t left = 0, total = 0;
    INKLING_CUDA("memory", cudaMemGetInfo, &left, &total);
    if (!add_segment(pool, size))
      ink::detail::fail<DeviceError>(
          {"memory: cannot allocate ", bytes, " bytes on ", device_, ": ", stats_.bytes_in_use,
           " in use and ", stats_.bytes_held - stats_.bytes_in_use, " kept by inkling, ", left,
           " of ", total,
           " free on the card; use a smaller batch, block or model, or --recompute"});
  }
  if (block == nullptr) block = free_[pool].take(size);
  stats_.bytes_in_use += size;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
#ifndef NDEBUG
  // NaN in every float.
  INKLING_CUDA("memory", cudaMemsetAsync, block, 0xff, static_cast<size_t>(bytes), stream());
#endif
  return block;
}

void Allocator::release(void* memory, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const int64_t size = rounded(bytes);
  stats_.bytes_in_use -= size;
  put(static_cast<char*>(memory), size);
  if (!direct_) return;
  try {
    use(device_);
    flush();
  } catch (const Error&) {  // the device is lost, and its memory with it
  }
}

void Allocator::put(char* block, int64_t size) {
  const auto& [start, segment] = *std::prev(segments_.upper_bound(block));
  if (segment.pool == kEager)  // a replay uses captured memory again
    ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(size));
  free_[segment.pool].put(block, size, start, start + segment.bytes);
}

MemoryStats Allocator::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

void Allocator::empty_cache() {
  use(device_);
  const std::lock_guard lock(mutex_);
  flush();
}

Allocator::Pool Allocator::open_pool() {
  const std::lock_guard lock(mutex_);
  return ++last_pool_;
}

void Allocator::close_pool(Pool pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [start, segment] : segments_)
    if (segment.pool == pool) segment.pool = kEager;
  if (const auto ranges = free_.extract(pool))
    for (const auto& [start, size] : ranges.mapped().all()) put(start, size);
}

// Tries a large segment, then the smallest that fits. False if the card has no memory for that.
bool Allocator::add_segment(Pool pool, int64_t bytes) {
  for (const int64_t size : {std::max(bytes, kSegment), bytes}) {
    const int64_t length = direct_ ? bytes : round_up(size, kSegmentStep);
    void* start = nullptr;
    if (cudaMalloc(&start, static_cast<size_t>(length)) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      continue;
    }
    ASAN_POISON_MEMORY_REGION(start, static_cast<size_t>(length));
    segments_.emplace(static_cast<char*>(start), Segment{length, pool});
    put(static_cast<char*>(start), length);
    stats_.bytes_held += length;
    ++stats_.raw_allocations;
    return true;
  }
  return false;
}

// cudaFree waits until the GPU has done all earlier work.
void Allocator::flush() {
  if (capturing()) return;
  FreeRanges& ranges = free_[kEager];
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto [start, bytes] = std::pair(segment->first, segment->second.bytes);
    if (segment->second.pool != kEager || ranges.ending_at(start + bytes) != bytes) {
      ++segment;
      continue;
    }
    ranges.cut(start, bytes);
    ASAN_UNPOISON_MEMORY_REGION(start, static_cast<size_t>(bytes));
    INKLING_CUDA("memory", cudaFree, start);
    stats_.bytes_held -= bytes;
    segment = segments_.erase(segment);
  }
}

Allocator& allocator(Device device) {
  static auto* all = [] {  // never destroyed: tensors may live in other static objects
    auto* made = new std::vector<Allocator*>;
    const char* how = std::getenv("INKLING_CUDA_ALLOCATOR");
    const bool direct = how != nullptr && *how != '\0';
    INK_CHECK(!direct || std::string_view(how) == "direct",
              "INKLING_CUDA_ALLOCATOR: expected direct, got ", how);
    for (int8_t i = 0; i < 16; ++i) made->push_back(new Allocator(Device{Device::CUDA, i}, direct));
    return made;
  }();
  return *(*all)[static_cast<size_t>(device.index)];
}

}  // namespace ink::cuda
