// inkling exercise: lists the exercises, sets one up, and shows hints and solutions. Compiling and
// checking an answer is run.sh's part.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/progress.h"
#include "train/lessons/exercises/checks/texts.h"

namespace ink {
namespace {

using std::filesystem::path;

// Its number or its name names it, and so does the name of its file.
bool is_called(const Exercise& exercise, const std::string& word) {
  return word == number_of(exercise) || word == exercise.name ||
         word == exercise.name.substr(0, 2) || word == exercise.name.substr(3);
}

const Exercise& find(const std::vector<Exercise>& list, const std::string& word) {
  for (const Exercise& exercise : list)
    if (is_called(exercise, word)) return exercise;
  std::vector<std::string> names;
  for (const Exercise& exercise : list) names.push_back(exercise.name.substr(3));
  throw UsageError(fmt::format("there is no exercise {}; there are 1 to {}{}", word, list.size(),
                               suggestion(word, names)));
}

std::string word_for(ExerciseState state) {
  constexpr const char* kWords[] = {"open", "begun", "changed", "solved"};
  return kWords[static_cast<int>(state)];
}

void list_all(const std::vector<Exercise>& list, const path& checkout) {
  const Console console;
  const Exercise* next = next_of(list, checkout);
  size_t solved = 0;
  for (const Exercise& exercise : list) {
    const std::string title = title_of(exercise_source(exercise.name));
    const ExerciseState state = state_of(exercise, checkout);
    solved += state == ExerciseState::solved;
    const std::string line =
        fmt::format("  {:>2}  {:<19} {:<44} {}", number_of(exercise), exercise.name.substr(3),
                    title.substr(title.find(": ") + 2), word_for(state));
    const std::string shown = filled(line + (&exercise == next ? " <-" : ""), shown_columns(), 6);
    std::cout << (state == ExerciseState::solved ? console.green(shown)
                  : &exercise == next            ? console.bold(shown)
                                                 : shown)
              << "\n";
  }
  std::string below = fmt::format("{} of {} are solved.", solved, list.size());
  if (next != nullptr) {
    const bool there = exists(file_of(*next, checkout));
    below += (there ? " To go on: " : " To begin the next: ") +
             typed("exercise " + number_of(*next) + (there ? " --watch" : ""));
  }
  below += "\nAny other: " + typed("exercise NAME") + " (its number is enough)\n";
  std::cout << "\n" << filled(below, shown_columns(), 4);
}

// The numbers of those to check again, for run.sh.
void list_changed(const std::vector<Exercise>& list, const path& checkout) {
  for (const Exercise& exercise : list)
    if (state_of(exercise, checkout) == ExerciseState::changed)
      std::cout << number_of(exercise) << "\n";
}

// One hint more than the last time.
void show_hints(const Exercise& exercise, const path& checkout) {
  ReaderProgress progress(checkout);
  const size_t all = exercise.hints.size(), shown = progress.count("hint", exercise.name),
               now = std::min(shown + 1, all);
  for (size_t i = 0; i < now; ++i)
    std::cout << in_lines(fmt::format("{} of {}: {}", i + 1, all, exercise.hints[i]));
  const std::string this_one = typed("exercise " + number_of(exercise));
  std::cout << fmt::format("\nIt is explained in {}. {} {}\n", exercise.lesson,
                           now < all ? "The next hint says more:" : "A solution:",
                           this_one + (now < all ? " --hint" : " --solution"));
  if (shown < all && !progress.note("hint", exercise.name, exercise.hints[now - 1]))
    std::cout << "(exercises/progress.txt cannot be written, so the next call shows no more.)\n";
}

void set_up(const Exercise& exercise, const path& checkout) {
  const path file = file_of(exercise, checkout);
  create_directories(file.parent_path());
  std::FILE* out = std::fopen(file.c_str(), "wx");  // x: only if it does not exist
  if (out == nullptr && errno == EEXIST) {
    std::cout << file.string() << " is there already, and stays as it is.\n";
  } else {
    INK_CHECK(out != nullptr, "cannot write ", file.string(), ": ", std::strerror(errno));
    const std::string text = with_holes(exercise_source(exercise.name));
    const bool written = std::fputs(text.c_str(), out) >= 0;
    INK_CHECK((std::fclose(out) == 0) && written, "cannot write ", file.string());
    std::cout << file.string() << " is set up. Read it, and write your part. It is explained in "
              << exercise.lesson << ".\n";
  }
  const std::string this_one = "exercise " + number_of(exercise);
  std::cout << fmt::format("  {:<36} what is right, and what is wrong\n",
                           typed(this_one + " --check"))
            << fmt::format("  {:<36} the same, each time you save the file\n",
                           typed(this_one + " --watch"))
            << fmt::format("  {:<36} a hint\n", typed(this_one + " --hint"))
            << fmt::format("  {:<36} a solution, and how the library does it\n",
                           typed(this_one + " --solution"));
}

void show_solution(const Exercise& exercise, const path& checkout) {
  const Console console;
  std::cout << console.bold("A solution") << "\n\n" << solution_of(exercise_source(exercise.name));
  std::cout << "\n"
            << console.bold("In the library: " + place_of(exercise.library, checkout)) << "\n\n"
            << in_lines(exercise.library.why) << "\n"
            << definition_in(text_in(checkout / exercise.library.file), exercise.library.begins);
}

}  // namespace

int exercise_command(const Arguments& arguments) {
  CommandOptions command("exercise",
                         "Functions to write, from the chain rule to a GPT, each in a file of a "
                         "page that is checked.\nWithout NAME: lists them, and what is solved. "
                         "With NAME: sets up exercises/NN_NAME.cpp, unless it is there already.");
  std::string name, device, checkout = ".";
  bool check = false, watch = false, hint = false, solution = false, changed = false;
  command.add("NAME", &name, "which one; its number is enough");
  command.flag("--check", check, "compile your file, and say what is right and what is wrong");
  command.flag("--watch", watch, "the same each time you save the file, until all is right");
  command.add("--device", &device,
              "cuda: check a kernel on a GPU, not on the emulator; needs nvcc");
  command.flag("--hint", hint, "a hint; the next time one more, which says more");
  command.flag("--solution", solution, "a solution, and how the library does it");
  command.flag("--changed", changed, "the numbers of those that changed since they were solved");
  command.add("--checkout", &checkout, "inkling's sources, beside which exercises/ stands");
  if (!command.parse(arguments)) return kOk;
  INK_CHECK(is_directory(path(checkout)), "--checkout: ", checkout,
            ": expected a folder, with inkling's sources");
  const std::vector<Exercise> list = exercises();
  if (name.empty()) {
    if (check || watch || hint || solution) throw UsageError("expected NAME: which exercise?");
    changed ? list_changed(list, checkout) : list_all(list, checkout);
    return kOk;
  }
  const Exercise& exercise = find(list, name);
  if (!device.empty() && (device != "cuda" || exercise.extension != ".cu"))
    throw UsageError("--device: expected cuda, with an exercise that is a kernel (a .cu file)");
  if (check || watch || !device.empty()) {
    const std::string option = watch ? " --watch" : " --check";
    throw UsageError(option.substr(1) + " compiles, which run.sh does: ./run.sh exercise " +
                     number_of(exercise) + option + (device.empty() ? "" : " --device cuda"));
  }
  if (hint) show_hints(exercise, checkout);
  if (solution) show_solution(exercise, checkout);
  if (!hint && !solution) set_up(exercise, checkout);
  return kOk;
}

}  // namespace ink
