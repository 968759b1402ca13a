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

}  // namespace
}  // namespace ink
