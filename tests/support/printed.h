// Print-outs of lessons on disk: "step N" begins a step, "> " a print, "| " a further line of it.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "train/lessons/notebook.h"

namespace ink {

/// A file of tests/golden, such as "walkthroughs/the_averaging_trick.txt". The lines in the source
/// are not known.
inline std::vector<Printed> read_printed(const std::string& file) {
  std::ifstream in(std::string(INKLING_SOURCE_DIR "/tests/golden/") + file);
  std::vector<Printed> list;
  int step = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("step ", 0) == 0) {
      step = std::stoi(line.substr(5));
    } else if (line.rfind("> ", 0) == 0) {
      list.push_back({step, 0, line.substr(2)});
    } else {
      list.back().text += "\n" + line.substr(2);
    }
  }
  return list;
}

inline void write_printed(const std::string& file, const std::vector<Printed>& list) {
  std::ofstream out(std::string(INKLING_SOURCE_DIR "/tests/golden/") + file);
  int step = 0;
  for (const Printed& printed : list) {
    if (printed.step != step) out << "step " << (step = printed.step) << "\n";
    out << "> ";
    for (const char c : printed.text) out << c << (c == '\n' ? "| " : "");
    out << "\n";
  }
}

}  // namespace ink
