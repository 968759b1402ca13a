// inkling lesson, inkling walkthrough: programs to read in a terminal, with what they printed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

std::string indented(const std::string& text) {
  std::string result;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && c != '\n') result += "    ";
    result += c;
    line_start = c == '\n';
  }
  return result;
}

void list(const std::string& kind, const std::vector<Lesson>& lessons) {
  for (const Lesson& lesson : lessons)
    std::cout << fmt::format("  {:<24} {} ({} steps)\n", lesson.name, page(lesson, 0).at(0).text,
                             lesson.steps);
  std::cout << "\nTo read one: " << typed(kind + " NAME [--step N]\n");
}

void read(const Lesson& lesson, int steps) {
  const Console console;
  for (const Piece& piece : page(lesson, steps)) {
    switch (piece.kind) {
      case Piece::title:
        std::cout << console.bold(piece.text) << "\n\n";
        break;
      case Piece::prose:
        std::cout << piece.text << "\n\n";
        break;
      case Piece::code:
        std::cout << console.dim(indented(piece.text)) << "\n\n";
        break;
      case Piece::output:
        std::cout << console.green(piece.text) << "\n\n";
        break;
    }
  }
}

// "5" is enough to name 5_training_loop.
bool is_called(const Lesson& lesson, const std::string& name) {
  const bool is_number =
      !name.empty() &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return lesson.name == name || (is_number && lesson.name.rfind(name + "_", 0) == 0);
}

// What both commands do. kind: what one of `lessons` is called.
int lesson_or_walkthrough(const std::string& kind, const std::string& description,
                          const std::vector<Lesson>& lessons, const Arguments& arguments) {
  CommandOptions command(kind, description + "\nWithout NAME: lists them.");
  std::string name;
  int64_t step = 0;
  command.add("NAME", &name, kind == "lesson" ? "which one; its number is enough" : "which one");
  command.add("--step", &step, "stop after this step; by default the last", {.limits = {1, 1000}});
  if (!command.parse(arguments)) return kOk;
  if (name.empty()) {
    list(kind, lessons);
    return kOk;
  }
  std::vector<std::string> names;
  for (const Lesson& lesson : lessons) {
    names.push_back(lesson.name);
    if (!is_called(lesson, name)) continue;
    if (command.given("--step") && (step < 1 || step > lesson.steps))
      throw UsageError(
          fmt::format("{} has steps 1 to {}, got {}", lesson.name, lesson.steps, step));
    read(lesson, step == 0 ? lesson.steps : static_cast<int>(step));
    return kOk;
  }
  throw UsageError(
      fmt::format("there is no {} {}; there are {}", kind, name, fmt::join(names, ", ")));
}

}  // namespace

int lesson_command(const Arguments& arguments) {
  return lesson_or_walkthrough(
      "lesson",
      "Programs to read, from a tape of scalars to a GPT: explanation, code and what it prints.",
      lessons(), arguments);
}

int walkthrough_command(const Arguments& arguments) {
  return lesson_or_walkthrough(
      "walkthrough",
      "Lessons on attention, step by step: explanation, code and tensors, with PyTorch's digits.",
      walkthroughs(), arguments);
}

}  // namespace ink
