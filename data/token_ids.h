// TokenIds: runs of token ids in memory, as if side by side.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace ink {

/// A view of ids of 2 or 4 bytes each, in one or more runs. What they are in must outlive it.
class TokenIds {
 public:
  using Run = std::variant<std::span<const uint16_t>, std::span<const uint32_t>>;

  TokenIds() = default;
  TokenIds(Run run) { add(run); }  // NOLINT: a run is what it holds

  /// is_mapped: the run is in a mapped file, whose pages `read` gives back.
  void add(Run run, bool is_mapped = false);

  int64_t size() const { return runs_.empty() ? 0 : runs_.back().end; }

  /// Fills `ids` with those from `start` on.
  void read(int64_t start, std::span<int64_t> ids) const;

  /// The ids of [begin, end).
  TokenIds part(int64_t begin, int64_t end) const;

 private:
  struct Piece {
    Run ids;
    int64_t end;  // of all up to here
    bool is_mapped;
  };
  std::vector<Piece> runs_;
};

}  // namespace ink
