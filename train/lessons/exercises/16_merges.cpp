// Exercise 16: byte pairs
//
// A tokenizer of byte pairs knows merges, in the order in which it learned them:
//
//   struct MergeRule { int64_t left, right, result; };
//
// A merge replaces two ids side by side, left and right, by one, result.
//
// Write next_merge: return the pair {left, right} that is met most often in `ids`, at all places
// where two ids stand side by side: "aaa" has the pair (a, a) twice. Of pairs that are met equally
// often, return the one of the smallest left, and then of the smallest right. There is at least one
// pair. This is how a merge is learned.
//
// Write merge_piece: return what becomes of the ids of a piece of text. Of all places where a merge
// could be done, do the one whose merge is the earliest in `merges`, and of equal ones the
// leftmost. Then look again, until none is left: what has been merged can be merged once more. No
// two merges have the same left and right.
//
// Lesson 10 explains both.
#include <map>

#include "train/lessons/exercises/exercise.h"

using namespace ink;

std::pair<int64_t, int64_t> next_merge(const std::vector<int64_t>& ids) {
  // >>> todo("next_merge");
  std::map<std::pair<int64_t, int64_t>, int> counts;
  for (size_t i = 0; i + 1 < ids.size(); ++i) ++counts[{ids[i], ids[i + 1]}];
  auto best = counts.begin();
  for (auto it = counts.begin(); it != counts.end(); ++it)
    if (it->second > best->second) best = it;
  return best->first;
  // <<<
}

std::vector<int64_t> merge_piece(std::vector<int64_t> ids, const std::vector<MergeRule>& merges) {
  // >>> todo("merge_piece");
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (size_t m = 0; m < best; ++m)
        if (merges[m].left == ids[i] && merges[m].right == ids[i + 1]) best = m, place = i;
    if (best == merges.size()) return ids;
    ids[place] = merges[best].result;
    ids.erase(ids.begin() + static_cast<int64_t>(place) + 1);
  }
  // <<<
}

INK_EXERCISE(merges_exercise(next_merge, merge_piece))
