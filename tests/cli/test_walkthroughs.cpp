// The walkthroughs against PyTorch's print-outs of the same steps (golden/walkthroughs.py), and
// the numbers that a reader of the notebooks knows. test_lessons.cpp tests the page.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/printed.h"
#include "tests/support/run_program.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

TEST(Walkthroughs, PrintWhatPyTorchPrints) {
  size_t prints = 0;
  for (const Lesson& w : walkthroughs()) {
    const std::vector<Printed> expected = read_printed("walkthroughs/" + w.name + ".txt"),
                               printed = w.run(w.steps);
    ASSERT_EQ(printed.size(), expected.size()) << w.name;
    for (size_t i = 0; i < printed.size(); ++i) {
      EXPECT_EQ(printed[i].text, expected[i].text)
          << w.name << ", step " << printed[i].step << ", line " << printed[i].line;
      EXPECT_EQ(printed[i].step, expected[i].step) << w.name;
    }
    prints += printed.size();
  }
  EXPECT_GE(prints, 100u);
}

// ---- the numbers of the notebooks, row by row

struct Listed {
  const char* name;
  int step;
  std::vector<std::string> rows;  // numbers that follow each other in what the step prints
};

const std::vector<Listed>& listed() {
  static const std::vector<Listed> list = {
#include "tests/cli/listed_numbers.inc"
  };
  return list;
}

// The numbers of a text: "[0.1, -inf]" gives " 0.1 -inf ". 1. and 1.0000, 0 and 0.0000 are one.
std::string numbers(const std::string& text) {
  std::string result = " ";
  std::string word;
  const auto end_word = [&] {
    const bool number = word.find_first_of("0123456789") != std::string::npos || word == "-inf";
    if (number) {
      if (const size_t point = word.find('.'); point != std::string::npos) {
        word.erase(word.find_last_not_of('0') + 1);
        if (word.back() == '.') word.pop_back();
      }
      if (word == "-0") word = "0";
      result += word + " ";
    }
    word.clear();
  };
  for (const char c : text) {
    if (std::string(" \n,[]()").find(c) == std::string::npos) {
      word += c;
    } else {
      end_word();
    }
  }
  end_word();
  return result;
}

TEST(Walkthroughs, HoldEveryListedNumber) {
  std::map<std::string, std::vector<Printed>> all;
  for (const Lesson& w : walkthroughs()) all[w.name] = w.run(w.steps);
  for (const Listed& entry : listed()) {
    std::string printed;
    for (const Printed& p : all.at(entry.name)) {
      if (p.step == entry.step) printed += numbers(p.text);
    }
    for (const std::string& row : entry.rows)
      EXPECT_NE(printed.find(numbers(row)), std::string::npos)
          << entry.name << ", step " << entry.step << ": " << row << " is not in\n"
          << printed;
  }
}

// ---- the program

TEST(Walkthroughs, InTheProgram) {
  const Ran list = run_program("walkthrough");
  EXPECT_EQ(list.code, 0) << list.err;
  for (const Lesson& w : walkthroughs())
    EXPECT_NE(list.out.find("  " + w.name + " "), std::string::npos) << list.out;
  const Ran three = run_program("walkthrough the_averaging_trick --step 3");
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_NE(three.out.find("\n3. Why do we divide by sqrt(d)?\n\nLet queries"), std::string::npos)
      << three.out;
  EXPECT_NE(three.out.find("\n  print(var(scores));\n| "), std::string::npos) << three.out;
  EXPECT_EQ(three.out.find("\n4. "), std::string::npos);
  const Ran unknown = run_program("walkthrough averaging");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err.substr(0, unknown.err.find('\n')),
            "inkling walkthrough: there is no walkthrough averaging; there are "
            "attention_from_scratch, self_attention_sentence, padding_and_cache, "
            "average_to_attention, the_averaging_trick");
  const Ran far = run_program("walkthrough the_averaging_trick --step 9");
  EXPECT_EQ(far.code, 2);
  EXPECT_EQ(far.err.substr(0, far.err.find('\n')),
            "inkling walkthrough: the_averaging_trick has steps 1 to 6, got 9");
}

}  // namespace
}  // namespace ink
