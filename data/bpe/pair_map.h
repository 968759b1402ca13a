// PairMap: a hash table from two tokens side by side to a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ink::bpe {

/// Two ids as one number; pairs are in the order of (left, right).
inline uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
inline int32_t left_of(uint64_t pair) { return static_cast<int32_t>(pair >> 32); }
inline int32_t right_of(uint64_t pair) { return static_cast<int32_t>(pair & 0xffffffff); }

/// Open addressing, a power of two of places, at most half of them taken. Nothing is ever removed.
template <class Value>
class PairMap {
 public:
  PairMap() : entries_(2) {}

  size_t size() const { return size_; }

  const Value* find(uint64_t pair) const {
    const Entry& entry = entries_[place(pair)];
    return entry.pair == kNone ? nullptr : &entry.value;
  }

  /// Its value, a new one if there is none; valid until the next call.
  Value& operator[](uint64_t pair) {
    size_t at = place(pair);
    if (entries_[at].pair == kNone) {
      if (2 * ++size_ > entries_.size()) {
        grow();
        at = place(pair);
      }
      entries_[at].pair = pair;
    }
    return entries_[at].value;
  }

  /// Calls f(pair, value) for each, in no order.
  template <class F>
  void for_each(F&& f) const {
    for (const Entry& entry : entries_)
      if (entry.pair != kNone) f(entry.pair, entry.value);
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Entry {
    uint64_t pair = kNone;
    Value value{};
  };

  // Where the pair stands, or would stand.
  size_t place(uint64_t pair) const {
    const size_t mask = entries_.size() - 1;
    size_t at = static_cast<size_t>((pair ^ pair >> 29) * 0x9e3779b97f4a7c15 >> 32) & mask;
    while (entries_[at].pair != kNone && entries_[at].pair != pair) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (Entry& entry : old)
      if (entry.pair != kNone) entries_[place(entry.pair)] = std::move(entry);
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace ink::bpe
