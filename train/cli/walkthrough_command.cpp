// inkling walkthrough: lessons to read in a terminal.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

void list() {
  for (const Walkthrough& w : walkthroughs())
    std::cout << fmt::format("  {:<24} {} ({} steps)\n", w.name, page(w, 0).at(0).text, w.steps);
  std::cout << "\nTo read one: " << typed("walkthrough NAME [--step N]\n");
}

void read(const Walkthrough& w, int steps) {
  const Console console;
  for (const Piece& piece : page(w, steps)) {
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

}  // namespace

int walkthrough_command(const Arguments& arguments) {
  CommandOptions command(
      "walkthrough",
      "Lessons on attention, step by step: explanation, code and tensors, with PyTorch's digits.\n"
      "Without NAME: lists them.");
  std::string name;
  int64_t step = 0;
  command.add("NAME", &name, "which one");
  command.add("--step", &step, "stop after this step; by default the last", {.limits = {1, 1000}});
  if (!command.parse(arguments)) return kOk;
  if (name.empty()) {
    list();
    return kOk;
  }
  std::vector<std::string> names;
  for (const Walkthrough& w : walkthroughs()) {
    names.push_back(w.name);
    if (w.name != name) continue;
    if (command.given("--step") && (step < 1 || step > w.steps))
      throw UsageError(fmt::format("{} has steps 1 to {}, got {}", name, w.steps, step));
    read(w, step == 0 ? w.steps : static_cast<int>(step));
    return kOk;
  }
  throw UsageError(
      fmt::format("there is no walkthrough {}; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace ink
