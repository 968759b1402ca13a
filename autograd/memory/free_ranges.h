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
    resize(by_end_.find(start + length), length - size);
    return start;
  }

  /// Is there a range of just this size?
  bool has(int64_t size) const {
    const auto found = by_size_.lower_bound({size, nullptr});
    return found != by_size_.end() && found->first == size;
  }

  /// Merges what it puts only with what lies in [first, end), if that is given.
  void put(char* start, int64_t size, const char* first = nullptr, const char* end = nullptr) {
    const auto after = by_end_.upper_bound(start);
    if (const int64_t before = start == first ? 0 : ending_at(start); before > 0) {
      resize(std::prev(after), 0);
      start -= before;
      size += before;
    }
    if (after != by_end_.end() && start + size == start_of(*after) && start + size != end)
      return resize(after, size + after->second);
    insert(start, size);
  }

  /// Takes these bytes, which must lie within one range.
  void cut(char* start, int64_t size) {
    const auto range = by_end_.lower_bound(start + size);
    const int64_t before = start - start_of(*range);
    resize(range, range->first - start - size);
    if (before > 0) insert(start - before, before);
  }

  /// Bytes that are free just before `end`.
  int64_t ending_at(char* end) const {
    const auto range = by_end_.find(end);
    return range == by_end_.end() ? 0 : range->second;
  }

  /// Start and size of each range, by address.
  std::map<char*, int64_t> all() const {
    std::map<char*, int64_t> sizes;
    for (const auto& range : by_end_) sizes.emplace(start_of(range), range.second);
    return sizes;
  }
  void clear() {
    by_end_.clear();
    by_size_.clear();
  }

 private:
  using ByEnd = std::map<char*, int64_t>;

  static char* start_of(const ByEnd::value_type& range) { return range.first - range.second; }

  void insert(char* start, int64_t size) {
    const auto entry = by_end_.emplace(start + size, size).first;
    try {
      by_size_.emplace(size, start);
    } catch (...) {  // both or none
      by_end_.erase(entry);
      throw;
    }
  }
  // The last `size` bytes stay free. What is cut from a range's start comes here, and keeps its
  // place by its end: nothing is allocated.
  void resize(ByEnd::iterator range, int64_t size) {
    auto entry = by_size_.extract({range->second, start_of(*range)});
    range->second = size;
    if (size == 0) return static_cast<void>(by_end_.erase(range));
    entry.value() = {size, start_of(*range)};
    by_size_.insert(std::move(entry));
  }

  ByEnd by_end_;  // the sizes
  std::set<std::pair<int64_t, char*>> by_size_;
};

}  // namespace ink
