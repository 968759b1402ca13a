#include <algorithm>
#include <map>
#include <utility>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace merges_check {

using Ids = std::vector<int64_t>;
using Pair = std::pair<int64_t, int64_t>;
using Rules = std::vector<MergeRule>;
using Next = Pair (*)(const Ids&);
using Merge = Ids (*)(Ids, const Rules&);

Tensor numbers(const Ids& ids) {
  const std::vector<double> values(ids.begin(), ids.end());
  return from_vector(values, {std::ssize(values)});
}

// A case is the ids, and for merge_piece left, right and result of each merge.
Tensors packed(const Ids& ids, const Rules& merges = {}) {
  Ids flat;
  for (const MergeRule& merge : merges)
    flat.insert(flat.end(), {merge.left, merge.right, merge.result});
  return {from_vector(ids, {std::ssize(ids)}), from_vector(flat, {std::ssize(flat)})};
}
Rules rules(const Tensors& in) {
  const Ids flat = in[1].tolist<int64_t>();
  Rules merges;
  for (size_t i = 0; i < flat.size(); i += 3) merges.push_back({flat[i], flat[i + 1], flat[i + 2]});
  return merges;
}

Answer next(Next f) {
  return [f](const Tensors& in) -> Tensors {
    const Pair pair = f(in[0].tolist<int64_t>());
    return {numbers({pair.first, pair.second})};
  };
}
Answer merge(Merge f) {
  return [f](const Tensors& in) -> Tensors {
    return {numbers(f(in[0].tolist<int64_t>(), rules(in)))};
  };
}

// ---- next_merge

template <class Better>
Pair best_pair(const Ids& ids, Better&& better, bool overlapping = true) {
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
using Counted = std::pair<int, Pair>;

Pair right_pair(const Ids& ids) {
  return best_pair(ids, [](const Counted& a, const Counted& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
}
Pair first_met(const Ids& ids) {
  return best_pair(ids, [](const Counted& a, const Counted& b) { return a.first > b.first; });
}
Pair largest_ids(const Ids& ids) {
  return best_pair(ids, [](const Counted& a, const Counted& b) { return a > b; });
}
Pair without_overlap(const Ids& ids) {
  return best_pair(
      ids,
      [](const Counted& a, const Counted& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
      },
      false);
}

// ---- merge_piece

enum class Order { right, leftmost_place, rightmost, latest };

Ids merge_by(Ids ids, const Rules& merges, Order order, int most = 1000) {
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
Ids right_merge(Ids ids, const Rules& merges) {
  return merge_by(std::move(ids), merges, Order::right);
}
Ids by_place(Ids ids, const Rules& merges) {
  return merge_by(std::move(ids), merges, Order::leftmost_place);
}
Ids rightmost(Ids ids, const Rules& merges) {
  return merge_by(std::move(ids), merges, Order::rightmost);
}
Ids latest(Ids ids, const Rules& merges) { return merge_by(std::move(ids), merges, Order::latest); }
Ids once(Ids ids, const Rules& merges) { return merge_by(std::move(ids), merges, Order::right, 1); }

}  // namespace merges_check

Exercise merges_exercise(merges_check::Next next_merge, merges_check::Merge merge_piece) {
  using namespace merges_check;
  const Rules rules = {{1, 2, 10}, {2, 3, 11}, {10, 3, 12}, {1, 1, 13}, {11, 4, 14}, {13, 13, 15}};
  return {"16_merges",
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
            next(right_pair),
            {{"one pair", packed({5, 7})},
             {"a pair met twice", packed({9, 3, 4, 1, 3, 4})},
             {"pairs met equally often", packed({8, 9, 1, 2, 8, 9, 1, 2})},
             {"aaaa, beside a pair met twice", packed({5, 5, 5, 5, 1, 2, 6, 1, 2})}},
            {{next(first_met),
              "Of pairs met equally often this takes the one met first. It is that of the "
              "smallest ids."},
             {next(largest_ids), "Of pairs met equally often this takes that of the largest ids."},
             {next(without_overlap),
              "This counts aaa as one pair. All places where two ids stand side by side count."}}},
           {"merge_piece",
            {"ids"},
            merge(merge_piece),
            merge(right_merge),
            {{"no merge fits", packed({3, 1, 4}, rules)},
             {"a merge of what was merged", packed({1, 2, 3}, rules)},
             {"a later place has the earlier merge", packed({2, 3, 1, 2}, rules)},
             {"the same merge at two places", packed({1, 1, 1}, rules)},
             {"an earlier merge takes what a later one needs", packed({1, 1, 2, 3, 4}, rules)},
             {"a single id", packed({1}, rules)},
             {"no ids", packed({}, rules)}},
            {{merge(by_place),
              "This does the leftmost merge first. The earliest in the list comes first."},
             {merge(rightmost), "Of equal merges this does the rightmost. aaa becomes (aa) a."},
             {merge(latest), "This does the latest merge first. The earliest comes first."},
             {merge(once), "This stops after one merge. Look again until none is left."}}}}};
}

}  // namespace ink
