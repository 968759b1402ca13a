// inkling exercise: lists the exercises, sets one up, and shows hints and solutions. Compiling and
// checking an answer is run.sh's part.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/texts.h"

namespace ink {
namespace {

using std::filesystem::path;

// "5" of "05_softmax"
std::string number_of(const Exercise& exercise) {
  return std::to_string(std::stoi(exercise.name.substr(0, 2)));
}

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

path file_of(const Exercise& exercise, const path& checkout) {
  return checkout / "exercises" / (exercise.name + ".cpp");
}

void list_all(const std::vector<Exercise>& list, const path& checkout) {
  for (const Exercise& exercise : list) {
    const std::string title = title_of(exercise_source(exercise.name));
    const bool begun = exists(file_of(exercise, checkout));
    std::cout << fmt::format("  {:>2}  {:<19} {:<36} {}\n", number_of(exercise),
                             exercise.name.substr(3), title.substr(title.find(": ") + 2),
                             begun ? "begun" : "not begun");
  }
  std::cout << "\nTo begin one: " << typed("exercise NAME") << "     (its number is enough)\n";
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
            << fmt::format("  {:<36} a hint\n", typed(this_one + " --hint"))
            << fmt::format("  {:<36} a solution, and how the library does it\n",
                           typed(this_one + " --solution"));
}

void show_solution(const Exercise& exercise, const path& checkout) {
  const Console console;
  std::cout << console.bold("A solution") << "\n\n" << solution_of(exercise_source(exercise.name));
  std::cout << "\n" << console.bold("In the library: " + exercise.library.file) << "\n\n";
  if (!exercise.library.note.empty()) std::cout << exercise.library.note << "\n\n";
  std::ifstream in(checkout / exercise.library.file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::cout << definition_in(text, exercise.library.begins);
}

}  // namespace

int exercise_command(const Arguments& arguments) {
  CommandOptions command("exercise",
                         "Functions to write, from the chain rule to a GPT, each in a file of a "
                         "page that is checked.\nWithout NAME: lists them. With NAME: sets up "
                         "exercises/NN_NAME.cpp, unless it is there already.");
  std::string name, checkout = ".";
  bool check = false, hint = false, solution = false;
  command.add("NAME", &name, "which one; its number is enough");
  command.flag("--check", check, "compile your file, and say what is right and what is wrong");
  command.flag("--hint", hint, "a hint");
  command.flag("--solution", solution, "a solution, and how the library does it");
  command.add("--checkout", &checkout, "inkling's sources, beside which exercises/ stands");
  if (!command.parse(arguments)) return kOk;
  INK_CHECK(is_directory(path(checkout)), "--checkout: ", checkout,
            ": expected a folder, with inkling's sources");
  const std::vector<Exercise> list = exercises();
  if (name.empty()) {
    if (check || hint || solution) throw UsageError("expected NAME: which exercise?");
    list_all(list, checkout);
    return kOk;
  }
  const Exercise& exercise = find(list, name);
  if (check)
    throw UsageError("--check compiles, which run.sh does: ./run.sh exercise " +
                     number_of(exercise) + " --check");
  if (hint) std::cout << exercise.hint << "\n(To read again: " << exercise.lesson << ")\n";
  if (solution) show_solution(exercise, checkout);
  if (!hint && !solution) set_up(exercise, checkout);
  return kOk;
}

}  // namespace ink
