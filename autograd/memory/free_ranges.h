// FreeRanges: which memory is free, and where a block is cut from it.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ink {

/// Ranges of addresses; neighbours are merged. Best fit keeps wide ranges whole for large requests.
class FreeRanges {
 public:
  /// Takes `size` bytes from the start of the smallest range that is large enough, the one with the
  /// lowest address of equals. A range that ends at `last` serves only what no other can. Null if
  /// there is none.
  char* take(int64_t size, const char* last = nullptr) {
    auto found = by_size_.lower_bound({size, nullptr});
    if (found == by_size_.end()) return nullptr;
    if (found->second + found->first == last && std::next(found) != by_size_.end()) ++found;
    const auto [length, start] = *found;
    erase(by_address_.find(start));
    if (length > size) insert(start + size, length - size);
    return start;
  }

  /// Is there a range of just this size?
  bool has(int64_t size) const {
    return by_size_.lower_bound({size, nullptr}) != by_size_.lower_bound({size + 1, nullptr});
  }

  /// Merges what it puts only with what lies in [first, end), if that is given.
  void put(char* start, int64_t size, const char* first = nullptr, const char* end = nullptr) {
    const auto after = by_address_.upper_bound(start);
    if (after != by_address_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == start && start != first) {
        start = before->first;
        size += before->second;
        erase(before);
      }
    }
    if (after != by_address_.end() && start + size == after->first && after->first != end) {
      size += after->second;
      erase(after);
    }
    insert(start, size);
  }

  /// Takes these bytes, which must lie within one range.
  void cut(char* start, int64_t size) {
    const auto range = std::prev(by_address_.upper_bound(start));
    const auto [first, length] = *range;
    erase(range);
    if (first < start) insert(first, start - first);
    if (start + size < first + length) insert(start + size, first + length - start - size);
  }

  /// Bytes that are free just before `end`.
  int64_t ending_at(char* end) const {
    const auto after = by_address_.lower_bound(end);
    if (after == by_address_.begin()) return 0;
    const auto [start, size] = *std::prev(after);
    return start + size == end ? size : 0;
  }

  /// Start and size of each range, by address.
  const std::map<char*, int64_t>& all() const { return by_address_; }
  void clear() {
    by_address_.clear();
    by_size_.clear();
  }

 private:
  void insert(char* start, int64_t size) {
    const auto entry = by_address_.emplace(start, size).first;
    try {
      by_size_.emplace(size, start);
    } catch (...) {  // both or none
      by_address_.erase(entry);
      throw;
    }
  }
  void erase(std::map<char*, int64_t>::const_iterator range) {
    by_size_.erase({range->second, range->first});
    by_address_.erase(range);
  }

  std::map<char*, int64_t> by_address_;
  std::set<std::pair<int64_t, char*>> by_size_;
};

}  // namespace ink
