// Runs the program under test, as a person would from a shell.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_files.h"

namespace ink {

struct Ran {
  int code;
  std::string out, err;
};

inline std::string program_path() {
  const char* elsewhere = std::getenv("INKLING_PROGRAM");  // where a build was carried to
  return elsewhere ? elsewhere : INKLING_PROGRAM;
}

/// A line for the shell, in which inkling is the program under test, and "$INKLING_PROGRAM", too.
inline Ran run_shell(const std::string& line) {
  const TempFolder folder;
  const auto read = [](const std::string& file) -> std::string {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  };
  const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
  setenv("INKLING_PROGRAM", program_path().c_str(), 1);  // its path may have spaces
  const std::string program = "inkling() { \"$INKLING_PROGRAM\" \"$@\"; }; ";
  const int status = std::system((program + "{ " + line + "; } >" + out + " 2>" + err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
}

inline Ran run_program(const std::string& arguments) { return run_shell("inkling " + arguments); }

}  // namespace ink
