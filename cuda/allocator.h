// The caching allocator of a GPU's memory.
#pragma once

#include <map>
#include <mutex>

#include "autograd/memory/free_ranges.h"
#include "autograd/memory/storage.h"

namespace ink::cuda {

/// Blocks are cut from segments, which come from cudaMalloc, and merge again when they are freed,
/// but not across two segments, because CUDA refuses copies over their boundary. All work of a
/// device runs on one stream, in order. So a freed block may be handed out at once, although the
/// GPU may still be using it. Memory that is allocated while a step is captured comes from a pool
/// of segments of its own. The pool lives until the capture is forgotten, because a replay writes
/// there again.
class Allocator {
 public:
  /// direct: each block is a cudaMalloc of its own and is freed at once, so that tools know where
  /// it ends (INKLING_CUDA_ALLOCATOR=direct in the environment).
  explicit Allocator(Device device, bool direct = false) : device_(device), direct_(direct) {}

  void* allocate(int64_t bytes);
  void release(void* block, int64_t bytes) noexcept;
  MemoryStats stats();
  void reset_peak();
  /// Gives free segments back to the driver.
  void empty_cache();

  using Pool = int64_t;
  /// Opens a pool for blocks that are allocated from now on while the stream is captured.
  Pool open_pool();
  /// Call it when the capture will not be replayed again: its memory is then free for everyone.
  void close_pool(Pool pool);

 private:
  static constexpr Pool kEager = 0;
  struct Segment {
    int64_t bytes;
    Pool pool;
  };
  int64_t rounded(int64_t bytes) const;
  void put(char* block, int64_t size);
  bool add_segment(Pool pool, int64_t bytes);
  void flush();

  Device device_;
  bool direct_;
  std::mutex mutex_;
  std::map<char*, Segment> segments_;
  std::map<Pool, FreeRanges> free_;
  Pool last_pool_ = kEager;
  MemoryStats stats_;
};

Allocator& allocator(Device device);

}  // namespace ink::cuda
