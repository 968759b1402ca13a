// Exercise 23: a data loader that resumes
//
// A run that was stopped should go on as if it had not been: with the same batches in the same
// order. A loader with a position inside would have to save it. A loader that is a function of the
// step has nothing to save, and any process can ask for any part of any step.
//
// A text has `windows` windows. Training goes through all of them once in each epoch, in an order
// that the epoch shuffles:
//
//   Ints shuffled(int64_t windows, int64_t seed, int64_t epoch);      // 0 .. windows - 1, mixed
//
// Step t takes the next `batch` windows. Steps count from 0, and epoch 0 is followed by epoch 1
// without a gap: a batch may begin in one and end in the next, or go through several.
//
// Return the windows of step t, in order. Ints is std::vector<int64_t>.
//
// Useful: at which place of the endless row of windows does row i of step t stand? / and % of it
// say the rest. shuffled takes time, so call it once for each epoch that you need.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

Ints windows_of(int64_t step, int64_t batch, int64_t windows, int64_t seed) {
  // >>> todo("windows_of");
  Ints result, order;
  int64_t epoch = -1;
  for (int64_t place = step * batch; place < (step + 1) * batch; ++place) {
    if (place / windows != epoch) {
      epoch = place / windows;
      order = shuffled(windows, seed, epoch);
    }
    result.push_back(order[static_cast<size_t>(place % windows)]);
  }
  return result;
  // <<<
}

INK_EXERCISE(loader_exercise(windows_of))
