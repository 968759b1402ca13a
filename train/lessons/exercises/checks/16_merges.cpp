#include <map>
#include <utility>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace merges_check {

using Ids = std::vector<int64_t>;
using Pair = std::pair<int64_t, int64_t>;
using Rules = std::vector<MergeRule>;
using Next = std::function<Pair(const Ids&)>;
using Merge = std::function<Ids(Ids, const Rules&)>;

Answer next(const Next& f) {
  return [f](const Tensors& in) -> Tensors {
    const Pair pair = f(in[0].tolist<int64_t>());
    return {list({pair.first, pair.second})};
  };
}
Answer merge(const Merge& f) {
  return [f](const Tensors& in) -> Tensors {
    const Rules rules = {{1, 2, 10}, {2, 3, 11},  {10, 3, 12},
                         {1, 1, 13}, {11, 4, 14}, {13, 13, 15}};
    return {list(f(in[0].tolist<int64_t>(), rules))};
  };
}

// ---- next_merge

using Counted = std::pair<int, Pair>;

Pair best_pair(const Ids& ids, bool (*better)(const Counted& a, const Counted& b),
               bool overlapping = true) {
  std::map<Pair, int> counts;
  std::map<Pair, size_t> last;  // where it was counted last
  std::vector<Pair> in_order;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const Pair pair{ids[i], ids[i + 1]};
    if (!overlapping && last.count(pair) != 0 && last[pair] + 1 == i) continue;
    last[pair] = i;
    if (counts[pair]++ == 0) in_order.push_back(pair);
  }
  Pair best = in_order.front();
  for (const Pair& pair : in_order)
    if (better(std::pair(counts[pair], pair), std::pair(counts[best], best))) best = pair;
  return best;
}
bool is_better(const Counted& a, const Counted& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}
Answer next_by(bool (*better)(const Counted& a, const Counted& b), bool overlapping = true) {
  return next([=](const Ids& ids) { return best_pair(ids, better, overlapping); });
}

// ---- merge_piece

enum class Order { right, leftmost_place, rightmost, latest };

Ids merged(Ids ids, const Rules& merges, Order order, int most) {
  for (; most > 0; --most) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t m = 0; m < merges.size(); ++m) {
        if (merges[m].left != ids[i] || merges[m].right != ids[i + 1]) continue;
        const bool none = best == merges.size();
        if (none || (order == Order::right && m < best) ||
            (order == Order::rightmost && m <= best) || (order == Order::latest && m > best))
          best = m, place = i;
      }
    }
    if (best == merges.size()) break;
    ids[place] = merges[best].result;
    ids.erase(ids.begin() + static_cast<int64_t>(place) + 1);
  }
  return ids;
}
Answer merge_by(Order order, int most = 1000) {
  return merge(
      [=](const Ids& ids, const Rules& merges) { return merged(ids, merges, order, most); });
}

}  // namespace merges_check

Exercise merges_exercise(std::pair<int64_t, int64_t> (*next_merge)(const std::vector<int64_t>&),
                         std::vector<int64_t> (*merge_piece)(std::vector<int64_t>,
                                                             const std::vector<MergeRule>&)) {
  using namespace merges_check;
  return {
      "16_merges",
      "lesson 10",
      {"next_merge: which container goes through its pairs in the order that decides between "
       "equal counts? merge_piece: which two things decide between places?",
       "next_merge: a std::map from pairs to counts, in which the first of the largest wins. "
       "merge_piece: for each pair find its place in merges, and keep the smallest.",
       "A strict < keeps the leftmost. Put result in the place of the pair's first id, erase "
       "the second one, and begin again; return when no pair is among merges."},
      {"data/bpe/merges.cpp", "void Merges::merge_short(",
       "It keeps the rank of every pair of neighbours, and after a merge looks up two of them "
       "anew instead of all. Long pieces use a heap."},
      {{"next_merge",
        {"pair"},
        next(next_merge),
        next_by(is_better),
        {{"one pair", {list({5, 7})}},
         {"a pair met twice", {list({9, 3, 4, 1, 3, 4})}},
         {"pairs met equally often", {list({8, 9, 1, 2, 8, 9, 1, 2})}},
         {"aaaa, beside a pair met twice", {list({5, 5, 5, 5, 1, 2, 6, 1, 2})}}},
        {{next_by([](const Counted& a, const Counted& b) { return a.first > b.first; }),
          "Of pairs met equally often this takes the one met first. It is that of the "
          "smallest ids."},
         {next_by([](const Counted& a, const Counted& b) { return a > b; }),
          "Of pairs met equally often this takes that of the largest ids."},
         {next_by(is_better, false),
          "This counts aaa as one pair. All places where two ids stand side by side count."}}},
       {"merge_piece",
        {"ids"},
        merge(merge_piece),
        merge_by(Order::right),
        {{"no merge fits", {list({3, 1, 4})}},
         {"a merge of what was merged", {list({1, 2, 3})}},
         {"a later place has the earlier merge", {list({2, 3, 1, 2})}},
         {"the same merge at two places", {list({1, 1, 1})}},
         {"an earlier merge takes what a later one needs", {list({1, 1, 2, 3, 4})}},
         {"a single id", {list({1})}},
         {"no ids", {list({})}}},
        {{merge_by(Order::leftmost_place),
          "This does the leftmost merge first. The earliest in the list comes first."},
         {merge_by(Order::rightmost),
          "Of equal merges this does the rightmost. aaa becomes (aa) a."},
         {merge_by(Order::latest), "This does the latest merge first. The earliest comes first."},
         {merge_by(Order::right, 1),
          "This stops after one merge. Look again until none is left."}}}}};
}

}  // namespace ink
