// inkling lesson, inkling walkthrough: programs to read in a terminal, with what they printed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/text.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/lessons/exercises/checks/progress.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

// Each line behind `prefix`, without spaces at its end.
std::string prefixed(const std::string& prefix, const std::string& text) {
  std::string result;
  TextStream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.insert(0, prefix);
    result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return result;
}

// Paragraphs in lines of at most 80 columns, or of a narrower terminal's. A line that begins with a
// space begins a line.
std::string filled_prose(const std::string& text) {
  std::string joined;
  bool goes_on = false;
  TextStream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool is_prose = !line.empty() && line[0] != ' ';
    joined += (joined.empty() ? "" : goes_on && is_prose ? " " : "\n") + line;
    goes_on = is_prose;
  }
  return filled(joined, std::min<size_t>(80, shown_columns()), 0);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// What stands before a lesson: "*" if it was read, "~" if it has changed since.
char mark_of(const std::optional<ReaderProgress>& progress, const Lesson& lesson) {
  if (!progress) return ' ';
  if (progress->has("read", lesson.name, lesson.source)) return '*';
  return progress->count("read", lesson.name) > 0 ? '~' : ' ';
}

void list(const std::string& kind, const std::vector<Lesson>& lessons,
          const std::optional<ReaderProgress>& progress) {
  bool numbered = false;
  std::string next, marks;
  for (const Lesson& lesson : lessons) {
    const bool was_numbered = std::exchange(numbered, is_number(lesson.name.substr(0, 1)));
    if (was_numbered && !numbered) std::cout << "\nThe walkthroughs follow PyTorch notebooks:\n";
    const char mark = mark_of(progress, lesson);
    marks += mark;
    if (mark != '*' && next.empty()) next = lesson.name;
    std::cout << filled(
        fmt::format("{} {:<23}  {}\n", mark, lesson.name, page(lesson, 0).at(0).text),
        shown_columns(), 4);
  }
  const auto read = std::count(marks.begin(), marks.end(), '*');
  if (marks.find_first_not_of(' ') != std::string::npos)
    std::cout << fmt::format("\n* read, {} of {}{}.{}\n", read, marks.size(),
                             marks.find('~') == std::string::npos ? "" : "; ~ changed since",
                             next.empty() ? "" : " The next: " + typed(kind + " " + next));
  std::cout << "\n"
            << filled("To read one: " + typed(kind + " NAME") +
                          (kind == "lesson" ? " (its number is enough)\n" : "\n"),
                      shown_columns(), 4);
}

// Code stands 2 columns to the right, and what it printed stands behind "| ".
void read(const Lesson& lesson, int steps) {
  const Console console;
  bool first = true;
  for (const Piece& piece : page(lesson, steps)) {
    if (!std::exchange(first, false) && piece.kind != Piece::output) std::cout << "\n";
    switch (piece.kind) {
      case Piece::title:
        std::cout << console.bold(piece.text) << "\n";
        break;
      case Piece::prose:
        std::cout << filled_prose(piece.text) << "\n";
        break;
      case Piece::code:
        std::cout << prefixed("  ", piece.text);
        break;
      case Piece::output:
        std::cout << console.green(prefixed("| ", piece.text));
        break;
    }
  }
  if (steps == lesson.steps)
    std::cout << fmt::format(
        "\nThe source is train/lessons/{0}.cpp. To build and run what you change:\n"
        "  ./run.sh lesson {0}\n",
        lesson.name);
}

// The lines of a bridge's parts, and of the library's files that do the same.
void count_lines(const Lesson& lesson, const std::string& checkout) {
  const std::vector<PartOfBridge> parts = bridge_parts(lesson.source);
  if (parts.empty() || !exists(std::filesystem::path(checkout) / "autograd/ops.h")) return;
  std::cout << "\nLines of code here, and of the files that do it in the library (now, without "
               "comments):\n";
  for (const PartOfBridge& part : parts) {
    std::cout << fmt::format("  {:<32}{:>4}\n", part.title, part.lines);
    for (const std::string& file : part.files)
      std::cout << fmt::format("    {:<32}{:>6}\n", file,
                               code_lines(text_in(std::filesystem::path(checkout) / file)));
  }
}

// "5" is enough to name 5_training_loop.
bool is_called(const Lesson& lesson, const std::string& name) {
  return lesson.name == name || (is_number(name) && lesson.name.rfind(name + "_", 0) == 0);
}

// Runs either command. kind: "lesson" or "walkthrough".
int lesson_or_walkthrough(const std::string& kind, const std::string& description,
                          const std::vector<Lesson>& lessons, const Arguments& arguments) {
  CommandOptions command(kind, description + "\nWithout NAME: lists them.");
  std::string name, checkout;
  int64_t step = 0;
  command.add("NAME", &name, kind == "lesson" ? "which one; its number is enough" : "which one");
  command.add("--step", &step, "stop after this step; by default the last", {.limits = {1, 1000}});
  command.add("--checkout", &checkout,
              "inkling's sources; what was read is noted there, in exercises/progress.txt");
  if (!command.parse(arguments)) return kOk;
  std::optional<ReaderProgress> progress;
  if (!checkout.empty()) progress.emplace(checkout);
  if (name.empty()) {
    list(kind, lessons, progress);
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
    if (step == 0 || step == lesson.steps) count_lines(lesson, checkout);
    if (progress && (step == 0 || step == lesson.steps))
      progress->note("read", lesson.name, lesson.source);  // a folder to read only keeps no marks
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
