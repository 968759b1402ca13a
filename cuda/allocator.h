// The caching allocator of a GPU's memory.
#pragma once

#include <map>
#include <mutex>

#include "autograd/free_ranges.h"
#include "autograd/storage.h"

namespace ink::cuda {

/// Blocks are cut from segments, which cudaMalloc gives, and merge again when they are freed. All
/// work of a device runs on one stream, in order: a freed block may be handed out at once, though
/// the GPU may still be at work on it. What is allocated while a step is being captured comes from
/// segments of its own, which only captured steps use: a replay writes there again.
class Allocator {
 public:
  explicit Allocator(Device device) : device_(device) {}

  void* allocate(int64_t bytes);
  void release(void* block, int64_t bytes) noexcept;
  MemoryStats stats();
  void reset_peak();
  /// Gives free segments back to the driver.
  void empty_cache();

 private:
  enum Pool { eager, captured };
  struct Segment {
    int64_t bytes;
    Pool pool;
  };
  Pool pool_of(const char* block) const;
  bool add_segment(Pool pool, int64_t bytes);
  void flush();

  Device device_;
  std::mutex mutex_;
  std::map<char*, Segment> segments_;
  FreeRanges free_[2];  // by pool
  MemoryStats stats_;
};

Allocator& allocator(Device device);

}  // namespace ink::cuda
