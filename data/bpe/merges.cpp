#include "data/bpe/merges.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"

namespace ink::bpe {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// A piece of at most 24 bytes as numbers. With its size they tell it from any other.
struct Key {
  uint64_t first = 0, last = 0, middle = 0, size = 0;
  bool operator==(const Key&) const = default;
};
constexpr size_t kLongestKey = 24;
// Bytes of a piece up to which looking at all pairs again is faster than a heap.
constexpr size_t kShort = 48;

template <class T>
uint64_t load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
Key key_of(std::string_view piece) {
  const char* const data = piece.data();
  const size_t size = piece.size();
  Key key{.size = size};
  if (size >= 8) {
    key.first = load<uint64_t>(data);
    key.last = load<uint64_t>(data + size - 8);
    if (size > 16) key.middle = load<uint64_t>(data + 8);
  } else if (size >= 4) {
    key.first = load<uint32_t>(data);
    key.last = load<uint32_t>(data + size - 4);
  } else if (size > 0) {
    key.first = load<uint8_t>(data) | load<uint8_t>(data + size / 2) << 8 |
                load<uint8_t>(data + size - 1) << 16;
  }
  return key;
}

// The short pieces that a thread met last, and their ids: texts repeat their words. One takes 64
// bytes, a line of the cache.
struct Met {
  Key key;
  uint32_t count = 0;
  std::array<int32_t, 7> ids;
};
constexpr int kMemoryBits = 15;  // two megabytes a thread

// The two places where a piece may be. A piece that was met is in the first one on return. A new
// one takes the first, and what stood there moves to the second. With one place each, rare pieces
// would push out frequent ones.
Met* recall(uint64_t owner, const Key& key) {
  struct Memory {
    uint64_t owner = 0;
    std::vector<Met> pieces;
  };
  thread_local Memory memory;
  if (memory.owner != owner) {
    memory.owner = owner;
    memory.pieces.assign(size_t{1} << kMemoryBits, Met());
  }
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15;
  const uint64_t hash =
      (((key.first ^ key.last >> 17) * kMix ^ key.middle ^ key.last) + key.size) * kMix;
  Met* const both = &memory.pieces[hash >> (65 - kMemoryBits) << 1];
  if (both[0].key != key && both[1].key == key) std::swap(both[0], both[1]);
  return both;
}

uint64_t next_owner() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

std::string shown(std::string_view bytes) {
  return detail::joined({"\"", printable(bytes, 60), "\""});
}

Merges::Merges(std::vector<std::string> tokens, const std::vector<Merge>& merges, bool whole_first)
    : tokens_(std::move(tokens)), whole_first_(whole_first), owner_(next_owner()) {
  byte_ids_.fill(-1);
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.empty()) continue;
    const auto [other, is_new] = ids_.emplace(token, static_cast<int32_t>(id));
    INK_CHECK(is_new, "tokenizer: the ids ", other->second, " and ", id, " are the same token, ",
              shown(token));
    if (token.size() == 1)
      byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
  }
  const auto size = static_cast<int32_t>(tokens_.size());
  for (const Merge& merge : merges) {
    const auto known = [&](int32_t id) { return id >= 0 && id < size; };
    INK_CHECK(known(merge.left) && known(merge.right) && known(merge.result),
              "tokenizer: a merge of the ids ", merge.left, " and ", merge.right, " into ",
              merge.result, ", but there are ", size, " tokens");
    const auto token = [&](int32_t id) -> const std::string& {
      return tokens_[static_cast<size_t>(id)];
    };
    INK_CHECK(token(merge.left) + token(merge.right) == token(merge.result),
              "tokenizer: a merge of ", shown(token(merge.left)), " and ",
              shown(token(merge.right)), " gives ", shown(token(merge.result)));
    // Of two merges of the same pair the last one counts, as in tokenizers.
    results_[pair_of(merge.left, merge.right)] = {.rank = merge.rank, .id = merge.result};
  }
  find_whole();
}

Merges Merges::by_id(std::vector<std::string> tokens) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) ids.emplace(tokens[id], static_cast<int32_t>(id));
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({.left = left->second, .right = right->second, .rank = id, .result = id});
    }
  }
  return {std::move(tokens), merges, true};
}

std::vector<Merge> Merges::merges() const {
  std::vector<Merge> all;
  results_.for_each([&](uint64_t pair, const Result& result) {
    all.push_back(
        {.left = left_of(pair), .right = right_of(pair), .rank = result.rank, .result = result.id});
  });
  const auto length = [&](const Merge& each) {
    return tokens_[static_cast<size_t>(each.left)].size();
  };
  std::sort(all.begin(), all.end(), [&](const Merge& a, const Merge& b) {
    return a.rank != b.rank ? a.rank < b.rank : length(a) < length(b);
  });
  return all;
}

int32_t Merges::id_of(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

// Most pieces of a text are tokens. Whether a token's own bytes lead to it is found once.
void Merges::find_whole() {
  whole_.assign(tokens_.size(), false);
  std::vector<int64_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.clear();
    const bool all_bytes = whole_first_ || encode_anew(tokens_[id], ids) == std::string_view::npos;
    whole_[id] = whole_first_ || (all_bytes && ids.size() == 1);
  }
}

size_t Merges::encode(std::string_view piece, std::vector<int64_t>& ids) const {
  if (piece.size() > kLongestKey) return encode_anew(piece, ids);
  const Key key = key_of(piece);
  Met* const both = recall(owner_, key);
  Met& met = both[0];
  if (met.key == key) {
    for (uint32_t i = 0; i < met.count; ++i) ids.push_back(met.ids[i]);
    return std::string_view::npos;
  }
  const size_t before = ids.size(), lacking = encode_anew(piece, ids), count = ids.size() - before;
  if (lacking != std::string_view::npos || count > met.ids.size()) return lacking;
  both[1] = met;
  met.key = key;
  met.count = static_cast<uint32_t>(count);
  for (size_t i = 0; i < count; ++i) met.ids[i] = static_cast<int32_t>(ids[before + i]);
  return lacking;
}

size_t Merges::encode_anew(std::string_view piece, std::vector<int64_t>& ids) const {
  const int32_t whole = id_of(piece);
  if (whole >= 0 && whole_[static_cast<size_t>(whole)]) {
    ids.push_back(whole);
    return std::string_view::npos;
  }
  for (size_t i = 0; i < piece.size(); ++i)
    if (byte_ids_[static_cast<unsigned char>(piece[i])] < 0) return i;
  piece.size() <= kShort ? merge_short(piece, ids) : merge_long(piece, ids);
  return std::string_view::npos;
}

void Merges::merge_short(std::string_view piece, std::vector<int64_t>& ids) const {
  struct Part {
    int32_t id, rank, result;  // rank, result: of the merge with the next part
  };
  std::array<Part, kShort> parts;
  size_t count = piece.size();
  const auto look = [&](size_t i) {
    const Result* merge =
        i + 1 < count ? results_.find(pair_of(parts[i].id, parts[i + 1].id)) : nullptr;
    parts[i].rank = merge == nullptr ? kNever : merge->rank;
    parts[i].result = merge == nullptr ? 0 : merge->id;
  };
  for (size_t i = 0; i < count; ++i) parts[i].id = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i < count; ++i) look(i);
  while (count > 1) {
    auto* const first = parts.data();
    auto* const best = std::min_element(
        first, first + count, [](const Part& a, const Part& b) { return a.rank < b.rank; });
    if (best->rank == kNever) break;
    best->id = best->result;
    std::copy(best + 2, first + count, best + 1);
    --count;
    const auto at = static_cast<size_t>(best - first);
    look(at);
    if (at > 0) look(at - 1);
  }
  for (size_t i = 0; i < count; ++i) ids.push_back(parts[i].id);
}

// The parts are a list; a heap holds the pairs that may merge. A pair that has changed since is
// found by its result.
void Merges::merge_long(std::string_view piece, std::vector<int64_t>& ids) const {
  struct Part {
    int32_t id;
    uint32_t before, after;
  };
  struct Candidate {
    int32_t rank;
    uint32_t at;
    int32_t left, right, result;
    bool operator<(const Candidate& other) const {  // the heap's top is its largest
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr uint32_t kEnd = ~uint32_t{0};
  INK_CHECK(piece.size() < kEnd, "encode: a piece of ", piece.size(), " bytes is too long");
  std::vector<Part> parts(piece.size());
  std::priority_queue<Candidate> heap;
  const auto look = [&](uint32_t at) {
    if (at == kEnd || parts[at].after == kEnd) return;
    const int32_t left = parts[at].id, right = parts[parts[at].after].id;
    if (const Result* merge = results_.find(pair_of(left, right)))
      heap.push({.rank = merge->rank, .at = at, .left = left, .right = right, .result = merge->id});
  };
  const auto size = static_cast<uint32_t>(piece.size());
  for (uint32_t i = 0; i < size; ++i)
    parts[i] = {.id = byte_ids_[static_cast<unsigned char>(piece[i])],
                .before = i == 0 ? kEnd : i - 1,
                .after = i + 1 == size ? kEnd : i + 1};
  for (uint32_t i = 0; i < size; ++i) look(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Part& part = parts[top.at];
    if (part.id != top.left || part.after == kEnd || parts[part.after].id != top.right) continue;
    parts[part.after].id = -1;  // gone: no candidate of it holds any more
    part.id = top.result;
    part.after = parts[part.after].after;
    if (part.after != kEnd) parts[part.after].before = top.at;
    look(top.at);
    look(part.before);
  }
  for (uint32_t at = 0; at != kEnd; at = parts[at].after) ids.push_back(parts[at].id);
}

}  // namespace ink::bpe
