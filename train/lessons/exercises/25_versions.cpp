// Exercise 25: views, writes, and why memory has a version
//
// Several views can share one memory: a row of a matrix, its transpose, the matrix itself. A view
// knows where in the memory it begins, and how long it is:
//
//   struct Memory { std::vector<double> numbers; int64_t version = 0; };
//   struct View { std::shared_ptr<Memory> memory; size_t begin, size; };
//
// Forward keeps what backward will need. Copying it would take as much memory again, so what is
// kept is the view. But then somebody may write to the memory before backward reads it, perhaps
// through another view, and the gradient would silently be wrong. So the memory counts its writes:
// whoever keeps something notes the version, and looks whether it is still the same.
//
//   struct Kept { View view; int64_t version; };          // version: the memory's when it was kept
//
// Write write: put x in the place of element i of the view.
// Write unpack: return the numbers of the kept view, or throw Error("...") if they may no longer be
// those that were kept. That is about the memory: the kept numbers are not compared, because a copy
// of them is what we wanted to save.
//
// A write before something was kept does no harm, however many there were. Lesson 1 explains views.
#include "train/lessons/exercises/exercise.h"

using namespace ink;

void write(const View& view, size_t i, double x) {
  // >>> todo("write");
  view.memory->numbers[view.begin + i] = x;
  ++view.memory->version;
  // <<<
}

std::vector<double> unpack(const Kept& kept) {
  // >>> todo("unpack");
  const View& view = kept.view;
  if (view.memory->version != kept.version) throw Error("written since it was kept");
  const auto first = view.memory->numbers.begin() + static_cast<std::ptrdiff_t>(view.begin);
  return {first, first + static_cast<std::ptrdiff_t>(view.size)};
  // <<<
}

INK_EXERCISE(versions_exercise(write, unpack))
