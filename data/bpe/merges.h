// Merges: byte-pair encoding of a piece of text (Sennrich et al. 2016, arXiv 1508.07909).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/bpe/pair_map.h"

namespace ink::bpe {

/// A vocabulary has at most so many ids.
inline constexpr int64_t kMostTokens = int64_t{1} << 22;

/// The ids of that many tokens are below this: there may be gaps, but each takes memory.
inline int64_t most_ids(size_t tokens) {
  return std::min(kMostTokens, 262'144 + 64 * static_cast<int64_t>(tokens));
}

/// Bytes in quotes, as an error shows them.
std::string shown(std::string_view bytes);

/// Two tokens side by side, and the token that takes their place. Of all pairs in a piece the one
/// of the lowest rank is merged first, of equal ranks the leftmost.
struct Merge {
  int32_t left = 0, right = 0;
  int32_t rank = 0;
  int32_t result = 0;
};

/// A vocabulary of byte strings and the merges that build them. Immutable.
class Merges {
 public:
  /// tokens: the bytes of each id; empty where an id has none. `whole_first`: a piece that is a
  /// token is that token, whatever the merges say (tokenizers' ignore_merges, tiktoken). Throws if
  /// two ids have the same bytes, or if a merge's result is not its parts joined.
  Merges(std::vector<std::string> tokens, const std::vector<Merge>& merges, bool whole_first);

  /// tiktoken's rule: any two tokens merge whose joined bytes are a token, and its id is the rank.
  static Merges by_id(std::vector<std::string> tokens);

  Merges(const Merges&) = delete;
  Merges& operator=(const Merges&) = delete;
  Merges(Merges&&) noexcept = default;
  Merges& operator=(Merges&&) noexcept = default;
  ~Merges() = default;

  const std::vector<std::string>& tokens() const { return tokens_; }
  /// By rank, then by the length of the left part.
  std::vector<Merge> merges() const;
  bool whole_first() const { return whole_first_; }
  /// -1: not a token.
  int32_t id_of(std::string_view bytes) const;

  /// Appends the ids of a piece. If a byte of it has no token, appends nothing and returns its
  /// place; otherwise npos. Takes O(n log n) time.
  size_t encode(std::string_view piece, std::vector<int64_t>& ids) const;

 private:
  struct Result {
    int32_t rank = 0, id = 0;
  };

  void find_whole();
  size_t encode_anew(std::string_view piece, std::vector<int64_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int64_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<int64_t>& ids) const;

  std::vector<std::string> tokens_;
  bool whole_first_;
  uint64_t owner_;  // its number, by which a thread knows whose ids it remembers
  std::unordered_map<std::string_view, int32_t> ids_;  // views of tokens_
  std::array<int32_t, 256> byte_ids_;                  // -1: none
  PairMap<Result> results_;
  std::vector<bool> whole_;  // by id: what its bytes are encoded to is this one token
};

}  // namespace ink::bpe
