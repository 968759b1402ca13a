#include <cstddef>
#include <memory>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace versions_check {

using Write = void (*)(const View&, size_t, double);
using Unpack = std::vector<double> (*)(const Kept&);

void right_write(const View& view, size_t i, double x) {
  view.memory->numbers[view.begin + i] = x;
  ++view.memory->version;
}
std::vector<double> numbers_of(const View& view) {
  const auto first = view.memory->numbers.begin() + static_cast<std::ptrdiff_t>(view.begin);
  return {first, first + static_cast<std::ptrdiff_t>(view.size)};
}
std::vector<double> right_unpack(const Kept& kept) {
  if (kept.view.memory->version != kept.version) throw Error("written since");
  return numbers_of(kept.view);
}

// inputs: the memory's numbers; the kept view's begin and size; then begin, element and number of
// each write: (before, 3) and (after, 3). outputs: was it refused?, the memory, what was unpacked
Answer answer(Write write, Unpack unpack) {
  return [=](const Tensors& in) -> Tensors {
    const auto memory = std::make_shared<Memory>();
    memory->numbers = in[0].tolist();
    const std::vector<int64_t> kept_view = in[1].tolist<int64_t>();
    const auto do_writes = [&](const Tensor& writes) {
      for (int64_t i = 0; i < writes.size(0); ++i) {
        const std::vector<double> w = writes.select(0, i).tolist();
        const auto begin = static_cast<size_t>(w[0]);
        write({memory, begin, memory->numbers.size() - begin}, static_cast<size_t>(w[1]), w[2]);
      }
    };
    do_writes(in[2]);
    const View view{memory, static_cast<size_t>(kept_view[0]), static_cast<size_t>(kept_view[1])};
    const Kept kept{view, memory->version};
    do_writes(in[3]);
    const auto shown = [](const std::vector<double>& x) { return from_vector(x, {std::ssize(x)}); };
    try {
      const std::vector<double> numbers = unpack(kept);
      return {scalar(0), shown(memory->numbers), shown(numbers)};
    } catch (const Error&) {
      return {scalar(1), shown(memory->numbers), zeros({0}, f64)};
    }
  };
}

// ---- mistakes

void not_counted(const View& view, size_t i, double x) { view.memory->numbers[view.begin + i] = x; }
void from_the_start(const View& view, size_t i, double x) {
  view.memory->numbers[i] = x;
  ++view.memory->version;
}
void counted_if_other(const View& view, size_t i, double x) {
  double& number = view.memory->numbers[view.begin + i];
  if (number != x) ++view.memory->version;
  number = x;
}
void into_a_copy(const View& view, size_t i, double x) {
  std::vector<double> numbers = view.memory->numbers;
  numbers[view.begin + i] = x;
  ++view.memory->version;
}
std::vector<double> never_refuses(const Kept& kept) { return numbers_of(kept.view); }
std::vector<double> refuses_all(const Kept& kept) {
  if (kept.view.memory->version != 0) throw Error("written");
  return numbers_of(kept.view);
}
std::vector<double> all_numbers(const Kept& kept) {
  right_unpack(kept);
  return kept.view.memory->numbers;
}
std::vector<double> from_0(const Kept& kept) {
  right_unpack(kept);
  return numbers_of({kept.view.memory, 0, kept.view.size});
}
std::vector<double> allows_one(const Kept& kept) {
  if (kept.view.memory->version > kept.version + 1) throw Error("written since");
  return numbers_of(kept.view);
}

Tensor writes(const std::vector<std::vector<double>>& list) {
  std::vector<double> flat;
  for (const std::vector<double>& write : list) flat.insert(flat.end(), write.begin(), write.end());
  return from_vector(flat, {std::ssize(list), 3});
}
Case of(const std::string& name, const std::vector<std::vector<double>>& before,
        const std::vector<std::vector<double>>& after) {
  return {
      name,
      {tensor({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, f64), tensor({2, 3}), writes(before), writes(after)}};
}

}  // namespace versions_check

Exercise versions_exercise(versions_check::Write write, versions_check::Unpack unpack) {
  using namespace versions_check;
  const std::vector<Case> cases = {of("nothing is written", {}, {}),
                                   of("a write before it was kept", {{2, 1, 7}}, {}),
                                   of("two writes before", {{0, 2, 7}, {4, 1, 8}}, {}),
                                   of("a write through the same view", {}, {{2, 1, 7}}),
                                   of("a write through another view", {}, {{1, 2, 7}}),
                                   of("the same number once more", {}, {{2, 0, 3}}),
                                   of("there and back", {{2, 0, 9}}, {{2, 0, 3}, {2, 0, 9}})};
  const std::vector<std::string> outputs = {"refused", "memory", "unpacked"};
  return {
      "25_versions",
      "lesson 1",
      {"Who must hold the count, so that a write through one view is seen by another one: the view "
       "or the memory?",
       "write changes two things, and both are in *view.memory: a number, and the version.",
       "numbers[view.begin + i] = x and ++version. unpack compares kept.version with "
       "view.memory->version, and returns view.size numbers from view.begin on."},
      {"autograd/engine/saved.cpp", "Tensor Saved::operator*(",
       "It does the same, and names the op, the tensor and both versions. The version is raised "
       "when somebody asks for writable memory, so that no kernel can forget it. It is one number "
       "for the whole memory: a write beside what was kept is refused, too, which costs a clone() "
       "sometimes and never a wrong gradient."},
      {{"write",
        outputs,
        answer(write, right_unpack),
        answer(right_write, right_unpack),
        cases,
        {{answer(not_counted, right_unpack),
          "The write is not counted, so that nobody notices it: raise the memory's version."},
         {answer(from_the_start, right_unpack),
          "Element i of the view is element begin + i of the memory."},
         {answer(counted_if_other, right_unpack),
          "A write of the same number is not counted. Comparing costs a read of all memory that is "
          "written: count every write."},
         {answer(into_a_copy, right_unpack),
          "This writes into a copy of the numbers. Write into view.memory->numbers itself."}}},
       {"unpack",
        outputs,
        answer(right_write, unpack),
        answer(right_write, right_unpack),
        cases,
        {{answer(right_write, never_refuses),
          "Nothing is ever refused: compare the version that was kept with the memory's."},
         {answer(right_write, refuses_all),
          "Writes before it was kept are refused, too. They do no harm: compare with "
          "kept.version."},
         {answer(right_write, all_numbers), "This returns the whole memory instead of the view."},
         {answer(right_write, from_0), "The view begins at view.begin, not at 0."},
         {answer(right_write, allows_one), "One write is one too many."}}}}};
}

}  // namespace ink
