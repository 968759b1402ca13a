// Storage: one block of memory, shared by every tensor that views it; and the caching allocator.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "autograd/base/device.h"

namespace ink {

/// A block of memory and the count of writes to it. Tensors hold it by shared_ptr; the last one
/// returns the block.
struct Storage {
  using Deleter = std::function<void(void*)>;

  /// From the caching allocator.
  Storage(int64_t bytes, Device device);
  /// On memory that somebody else owns (from_blob).
  Storage(void* memory, int64_t bytes, Device device, Deleter deleter);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Exchanges the memory of two storages under all tensors that view them. So a parameter moves to
  /// another device. It counts as a write to both.
  void swap(Storage& other) noexcept {
    std::swap(data, other.data);
    std::swap(bytes, other.bytes);
    std::swap(device, other.device);
    std::swap(deleter_, other.deleter_);
    attached = other.attached = nullptr;
    ++version;
    ++other.version;
  }

  /// Is it memory from from_blob, which its owner may write without our noticing?
  bool foreign() const { return deleter_ != nullptr; }

  void* data = nullptr;
  int64_t bytes = 0;
  Device device;
  std::atomic<uint64_t> version{0};  // bumped by every mutable_data(), compared by saved tensors

  /// What a cache keeps with this memory (autocast.h).
  std::shared_ptr<void> attached;

 private:
  Deleter deleter_;  // empty: the block belongs to the caching allocator
};

/// What the caching allocator of a device has done so far; bytes include rounding.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  int64_t bytes_held = 0;       // in use or kept for reuse
  int64_t raw_allocations = 0;  // calls to the system's allocator: none after the first steps
};

MemoryStats memory_stats(Device device = cpu_device);
/// The bytes that the allocator takes for a block of `bytes`.
int64_t block_bytes(int64_t bytes);
/// Sets the peak back to what is in use now.
void reset_peak_memory(Device device = cpu_device);
/// Gives the cached memory back to the system, in whole pages.
void empty_cache(Device device = cpu_device);

/// While it lives, new blocks on the CPU have guard bytes on both sides; a block returned with
/// changed ones is counted.
class MemoryGuard {
 public:
  [[nodiscard]] MemoryGuard();
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;
  /// Blocks returned so far whose guard bytes had been overwritten.
  int64_t overwritten() const;
};

namespace detail {
/// Blocks of at least `bytes`, 64-byte aligned; throws Error when the memory is not available.
void* allocate(int64_t bytes, Device device);
void release(void* block, int64_t bytes, Device device) noexcept;
}  // namespace detail

}  // namespace ink
