// What a person gives to runs as data, in the program: what is no such data is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/run_folder.h"

namespace ink {
namespace {

using DataOfRuns = RunFolder;

// A clone of nanoGPT, before anybody ran prepare.py.
TEST_F(DataOfRuns, AProgramThatMakesTheDataIsNoData) {
  fs::create_directories(path("data/openwebtext"));
  std::ofstream(path("data/openwebtext/prepare.py")) << std::string(2000, '#') + "\nimport numpy\n";
  std::ofstream(path("data/openwebtext/readme.md")) << std::string(2000, 'x') + "\n";
  const std::string here = "cd " + path(".") + "; ";
  expect_error(here + train("--dataset openwebtext"), 1,
               "data/openwebtext/prepare.py is a program; if it makes the data, run it first");
  fs::remove(path("data/openwebtext/prepare.py"));
  expect_error(here + train("--dataset openwebtext"), 1, "found readme.md");
  EXPECT_FALSE(fs::exists(path("out")));
}

// Ids of one vocabulary say nothing to a model of another.
TEST_F(DataOfRuns, ATaskOfAnotherVocabularyIsRefused) {
  const std::string text = path("a.txt"), out = " --out_dir " + path("out"),
                    other = "is not the one of 2 (char) that the model was trained on";
  std::ofstream(text) << std::string(2000, 'a') + std::string(2000, 'b');
  ASSERT_EQ(run_shell(train("--data " + text + out)).code, 0);
  expect_error("inkling eval --data task:addition" + out, 1,
               "inkling eval: the vocabulary of task:addition, such as ");
  expect_error("inkling eval --data task:addition" + out, 1, other);
  for (const char* data : {"", " --data task:sorting"})
    expect_error(train("--init_from " + path("out") + data + " --out_dir " + path("new")), 1,
                 other);
  ASSERT_EQ(run_shell(train("--data task:copy --out_dir " + path("copy"))).code, 0);
  const Ran same = run_shell("inkling eval --data task:reverse --out_dir " + path("copy"));
  EXPECT_EQ(same.code, 0) << same.err;
}

}  // namespace
}  // namespace ink
