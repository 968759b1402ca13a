// The lessons with numbers against their kept print-outs, golden/lessons/NAME.txt, and the page
// that a terminal shows of every lesson. After a lesson has changed,
//   INKLING_REFRESH_LESSONS=1 build/release/tests/tests_cli test_lessons
// writes the print-outs anew; read what `git diff` then says.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/print.h"
#include "autograd/random/generator.h"
#include "tests/support/printed.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

bool is_numbered(const Lesson& lesson) { return lesson.name[0] >= '0' && lesson.name[0] <= '9'; }

std::string file_of(const Lesson& lesson) {
  return (is_numbered(lesson) ? "lessons/" : "walkthroughs/") + lesson.name + ".txt";
}

TEST(Lessons, PrintWhatIsKeptAndLeaveNothingBehind) {
  const std::vector<uint8_t> state = default_generator().get_state();
  for (const Lesson& lesson : lessons()) {
    if (!is_numbered(lesson)) continue;  // those are compared with PyTorch
    const std::vector<Printed> printed = lesson.run(lesson.steps);
    if (std::getenv("INKLING_REFRESH_LESSONS") != nullptr) write_printed(file_of(lesson), printed);
    const std::vector<Printed> expected = read_printed(file_of(lesson));
    ASSERT_EQ(printed.size(), expected.size()) << lesson.name;
    for (size_t i = 0; i < printed.size(); ++i) {
      EXPECT_EQ(printed[i].text, expected[i].text)
          << lesson.name << ", step " << printed[i].step << ", line " << printed[i].line;
      EXPECT_EQ(printed[i].step, expected[i].step) << lesson.name;
    }
  }
  EXPECT_EQ(default_generator().get_state(), state);
  EXPECT_EQ(print_options().sci_mode, std::nullopt);
  EXPECT_EQ(context().default_dtype, f32);
  EXPECT_FALSE(context().imitate_torch.has_value());
}

// A lesson sends its reader to files of the library: these exist.
TEST(Lessons, NameFilesThatExist) {
  const std::regex file("(autograd|nn|data|train)/[a-z_0-9/]+\\.(h|cpp)");
  size_t named = 0;
  for (const Lesson& lesson : lessons())
    for (std::sregex_iterator at(lesson.source.begin(), lesson.source.end(), file), end; at != end;
         ++at, ++named)
      EXPECT_TRUE(std::filesystem::exists(INKLING_SOURCE_DIR "/" + at->str()))
          << lesson.name << " names " << at->str();
  EXPECT_GT(named, 20u);
}

// The bridge's table: lines of each part, and of the library's files as they are now.
TEST(Lessons, TheBridgeCountsLines) {
  const TempFolder folder;
  for (const char* room : {"autograd", "nn", "data", "train"})
    std::filesystem::create_directory_symlink(INKLING_SOURCE_DIR "/" + std::string(room),
                                              folder / room);
  const std::string at = " --checkout " + folder.path().string();
  const Ran ran = run_program("lesson 12" + at);
  const size_t table = ran.out.find("\nLines of code here");
  ASSERT_NE(table, std::string::npos) << ran.out;
  const std::string text = ran.out.substr(table);
  for (const char* title : {"1. A text as numbers", "2. A tape", "3. A GPT of such numbers",
                            "4. Training, side by side", "5. It writes"})
    EXPECT_TRUE(
        std::regex_search(text, std::regex(std::string("\n  ") + title + " +[1-9][0-9]*\n")))
        << text;
  for (const char* file : {"data/tokenizer.h", "autograd/engine/backward.cpp", "nn/gpt.h",
                           "train/optimizer.h", "nn/language_model.cpp"}) {
    std::ifstream in(std::string(INKLING_SOURCE_DIR) + "/" + file);
    int lines = 0;
    for (std::string line; std::getline(in, line);) {
      const size_t begin = line.find_first_not_of(' ');
      lines += begin != std::string::npos && line.compare(begin, 2, "//") != 0;
    }
    EXPECT_TRUE(std::regex_search(
        text, std::regex("    " + std::string(file) + " +" + std::to_string(lines) + "\n")))
        << file << " has " << lines << "\n"
        << text;
  }
  EXPECT_EQ(run_program("lesson 12 --step 1" + at).out.find("Lines of code here"),
            std::string::npos);
  EXPECT_EQ(run_program("lesson 3" + at).out.find("Lines of code here"), std::string::npos);
}

// ---- the page

// Every line inside the steps is in `text`.
void expect_source_in(const std::string& text, const Lesson& lesson) {
  std::istringstream in(lesson.source);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "  }") inside = false;
    const size_t start = line.find_first_not_of(" /");
    if (inside && start != std::string::npos) {
      EXPECT_NE(text.find(line.substr(start)), std::string::npos) << lesson.name << ": " << line;
    }
    if (line.rfind("  void step_", 0) == 0) inside = true;
  }
}

// In one thread, where the test above took as many as there are: the digits are the same.
TEST(Lessons, ThePageHoldsTheWholeSourceAndEveryOutputInOrder) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  for (const Lesson& lesson : lessons()) {
    std::string text;
    int titles = 0;
    size_t at = 0;
    for (const Piece& piece : page(lesson, lesson.steps)) {
      titles += piece.kind == Piece::title;
      text += piece.text + "\n";
      EXPECT_EQ(piece.text.find("step_"), std::string::npos) << piece.text;
    }
    EXPECT_EQ(titles, lesson.steps + 1) << lesson.name;
    for (const Printed& p : read_printed(file_of(lesson))) {
      at = text.find(p.text, at);
      ASSERT_NE(at, std::string::npos) << lesson.name << ", step " << p.step << ": " << p.text;
    }
    expect_source_in(text, lesson);
  }
  omp_set_num_threads(threads);
}

// ---- the program

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Lessons, InTheProgram) {
  const Ran list = run_program("lesson");
  EXPECT_EQ(list.code, 0) << list.err;
  for (const Lesson& lesson : lessons())
    EXPECT_NE(list.out.find("  " + lesson.name + " "), std::string::npos) << list.out;
  for (const std::string& line : lines_of(list.out))
    EXPECT_TRUE(line.size() <= 80 || line[0] != ' ') << line;
  const Ran by_name = run_program("lesson 0_tape --step 3"), by_number = run_program("lesson 0");
  EXPECT_EQ(by_number.code, 0) << by_number.err;
  EXPECT_EQ(by_name.code, 0) << by_name.err;
  EXPECT_NE(by_name.out.find("\n| df/dx = -2.0 df/dy = 2.0\n"), std::string::npos) << by_name.out;
  EXPECT_EQ(by_name.out.find("\n4. "), std::string::npos);
  EXPECT_EQ(by_number.out.substr(0, by_name.out.size()), by_name.out);
  for (const std::string& line : lines_of(by_number.out))  // code may be wider
    EXPECT_TRUE(line.size() <= 80 || line[0] == ' ') << line;
  EXPECT_NE(by_number.out.find("\nThe source is train/lessons/0_tape.cpp. "), std::string::npos);
  EXPECT_EQ(by_name.out.find("The source is"), std::string::npos);
  EXPECT_EQ(list.out.find('*'), std::string::npos) << list.out;
  const Ran unknown = run_program("lesson tape");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err.rfind("inkling lesson: there is no lesson tape; there are 0_tape, ", 0), 0u)
      << unknown.err;
  const Ran far = run_program("lesson 0 --step 9");
  EXPECT_EQ(far.code, 2);
  EXPECT_EQ(far.err.substr(0, far.err.find('\n')),
            "inkling lesson: 0_tape has steps 1 to 5, got 9");
}

TEST(Lessons, WhatWasReadIsMarked) {
  const TempFolder folder;
  const std::string at = " --checkout " + folder.path().string();
  EXPECT_EQ(run_program("lesson 0 --step 2" + at).code, 0);  // a part of it
  EXPECT_EQ(run_program("lesson" + at).out, run_program("lesson").out);
  EXPECT_EQ(run_program("lesson 0" + at).code, 0);
  EXPECT_EQ(run_program("lesson 0" + at).code, 0);
  const std::string once = run_program("lesson" + at).out;
  EXPECT_EQ(once.rfind("* 0_tape  ", 0), 0u) << once;
  EXPECT_NE(once.find("\n  1_tensors  "), std::string::npos) << once;
  const std::string all = std::to_string(lessons().size());
  EXPECT_NE(once.find("\n* read, 1 of " + all + ". The next: "), std::string::npos) << once;
  EXPECT_NE(once.find("lesson 1_tensors\n"), std::string::npos) << once;
  // Read in another version than the program's.
  folder.write("exercises/progress.txt", "read 0_tape 0123456789abcdef\n");
  const std::string changed = run_program("lesson" + at).out;
  EXPECT_EQ(changed.rfind("~ 0_tape  ", 0), 0u) << changed;
  EXPECT_NE(changed.find("\n* read, 0 of " + all + "; ~ changed since. "), std::string::npos)
      << changed;
}

}  // namespace
}  // namespace ink
