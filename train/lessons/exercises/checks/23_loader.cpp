#include <algorithm>
#include <numeric>
#include <utility>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace loader_check {

using F = Ints (*)(int64_t step, int64_t batch, int64_t windows, int64_t seed);

template <class Order>
Ints windows(int64_t step, int64_t batch, Order window_at) {
  Ints result;
  for (int64_t i = 0; i < batch; ++i) result.push_back(window_at(step * batch + i));
  return result;
}
int64_t in_order(const Ints& order, int64_t place) { return order[static_cast<size_t>(place)]; }

Ints right(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  return windows(step, batch,
                 [&](int64_t place) { return in_order(shuffled(n, seed, place / n), place % n); });
}
Ints never_anew(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  const Ints order = shuffled(n, seed, 0);
  return windows(step, batch, [&](int64_t place) { return in_order(order, place % n); });
}
Ints not_shuffled(int64_t step, int64_t batch, int64_t n, int64_t) {
  return windows(step, batch, [&](int64_t place) { return place % n; });
}
Ints anew_each_step(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  const Ints order = shuffled(n, seed, step);
  return windows(0, batch, [&](int64_t place) { return in_order(order, place % n); });
}
Ints epoch_of_the_first(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  const Ints order = shuffled(n, seed, step * batch / n);
  return windows(step, batch, [&](int64_t place) { return in_order(order, place % n); });
}
Ints drops_the_rest(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  const int64_t steps = std::max<int64_t>(n / batch, 1);  // of an epoch
  const Ints order = shuffled(n, seed, step / steps);
  return windows(step % steps, batch, [&](int64_t place) { return in_order(order, place % n); });
}
Ints short_at_the_end(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  Ints result = right(step, batch, n, seed);
  const int64_t left = n - step * batch % n;
  if (left < batch) result.resize(static_cast<size_t>(left));
  return result;
}
Ints epoch_in_seed(int64_t step, int64_t batch, int64_t n, int64_t seed) {
  return windows(step, batch, [&](int64_t place) {
    return in_order(shuffled(n, seed + place / n, 0), place % n);
  });
}

Case of(const std::string& name, int64_t step, int64_t batch, int64_t n, int64_t seed = 1) {
  return {name, {tensor(step), tensor(batch), tensor(n), tensor(seed)}};
}

}  // namespace loader_check

Ints shuffled(int64_t windows, int64_t seed, int64_t epoch) {
  Ints order(static_cast<size_t>(windows));
  std::iota(order.begin(), order.end(), int64_t{0});
  uint64_t state = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15 +
                   static_cast<uint64_t>(epoch + 1) * 0xbf58476d1ce4e5b9;
  for (size_t i = order.size(); i > 1; --i) {  // Fisher and Yates
    state = state * 6364136223846793005 + 1442695040888963407;
    std::swap(order[i - 1], order[(state >> 33) % i]);
  }
  return order;
}

Exercise loader_exercise(loader_check::F windows_of) {
  using namespace loader_check;
  return {
      "23_loader",
      "lesson 5",
      {"Imagine all epochs side by side as one endless row of windows. Which places of it does "
       "step t take?",
       "Places t batch .. t batch + batch - 1. Place p is in epoch p / windows, and there at "
       "p % windows.",
       "The window is shuffled(windows, seed, p / windows)[p % windows]. Keep the order until the "
       "epoch changes, because a batch may go through several."},
      {"data/dataset.cpp", "Batch Dataset::train_batch(",
       "The library draws each row of a step at random, from (seed, step, row) alone, as nanoGPT "
       "does: no epochs and no list of windows, which would take as much memory as a large text. "
       "The price is that a window can come twice before another comes once."},
      {{"windows_of",
        {"windows"},
        answer(windows_of),
        answer(right),
        {of("the first step", 0, 3, 7), of("the second step", 1, 3, 7),
         of("from epoch 0 into epoch 1", 2, 3, 7), of("within epoch 1", 3, 3, 7),
         of("a later epoch", 11, 4, 6), of("another seed", 1, 3, 7, 5),
         of("a batch of several epochs", 1, 8, 3), of("one window at a time", 9, 1, 4)},
        {{answer(never_anew), "Every epoch has the same order here. Its number shuffles it anew."},
         {answer(not_shuffled), "Nothing is shuffled: neighbours in the text share each batch."},
         {answer(anew_each_step),
          "Each step shuffles for itself, so that some windows come often and others never."},
         {answer(epoch_of_the_first),
          "A batch that crosses into the next epoch goes on with the order of the old one."},
         {answer(drops_the_rest),
          "What is left at the end of an epoch is dropped. The next epoch follows without a gap."},
         {answer(short_at_the_end),
          "The last batch of an epoch is short. Fill it from the next epoch."},
         {answer(epoch_in_seed),
          "seed + epoch makes seed 1 in epoch 1 the same as seed 2 in epoch 0. Pass both."}}}}};
}

}  // namespace ink
