#include "data/token_ids.h"

#include <algorithm>

#include "data/file.h"

namespace ink {

void TokenIds::add(Run run, bool is_mapped) {
  const auto count = std::visit([](auto ids) { return std::ssize(ids); }, run);
  if (count > 0) runs_.push_back({run, size() + count, is_mapped});
}

void TokenIds::read(int64_t start, std::span<int64_t> ids) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), start,
                              [](int64_t at, const Piece& each) { return at < each.end; });
  while (!ids.empty()) {
    std::visit(
        [&](auto all) {
          const auto from = static_cast<size_t>(start - (run->end - std::ssize(all)));
          const auto some = all.subspan(from, std::min(ids.size(), all.size() - from));
          std::copy(some.begin(), some.end(), ids.begin());
          if (run->is_mapped)
            release_mapped(std::as_bytes(all), from * sizeof some[0],
                           (from + some.size()) * sizeof some[0]);
          ids = ids.subspan(some.size());
          start += std::ssize(some);
        },
        run->ids);
    ++run;
  }
}

TokenIds TokenIds::part(int64_t begin, int64_t end) const {
  TokenIds result;
  for (const Piece& piece : runs_) {
    std::visit(
        [&](auto all) {
          const int64_t first = piece.end - std::ssize(all), from = std::max(begin, first),
                        to = std::min(end, piece.end);
          if (from >= to) return;
          const auto some =
              all.subspan(static_cast<size_t>(from - first), static_cast<size_t>(to - from));
          result.add(some, piece.is_mapped);
        },
        piece.ids);
  }
  return result;
}

}  // namespace ink
