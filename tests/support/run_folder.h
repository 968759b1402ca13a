// A folder for runs of the program, and short trainings there.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"

namespace ink {

namespace fs = std::filesystem;

class RunFolder : public testing::Test {
 protected:
  TempFolder folder;

  // Who runs the tests may ignore signals (nohup), and programs would inherit that.
  RunFolder() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  }

  std::string path(const std::string& name) const { return (folder / name).string(); }
  // A short training; `more` may change it.
  static std::string train(const std::string& more) {
    std::string line = "inkling train";
    for (const auto& [name, value] : {std::pair{"--n_layer", "1"},
                                      {"--n_head", "2"},
                                      {"--n_embd", "16"},
                                      {"--block_size", "32"},
                                      {"--batch_size", "2"},
                                      {"--max_iters", "20"},
                                      {"--eval_interval", "10"},
                                      {"--eval_iters", "1"},
                                      {"--log_interval", "5"},
                                      {"--final_eval", "off"},
                                      {"--sample_interval", "0"}}) {
      if (more.find(name) == std::string::npos) line += std::string(" ") + name + " " + value;
    }
    return line + " " + more;
  }
  // The same in the background, its output in `log`; goes on when it has told of a step. It ends
  // by itself, if the test does not end it.
  std::string train_in_background(const std::string& more, const std::string& before = "") const {
    const std::string log = path("log");
    return "rm -f " + log + "; " + before + " \"$INKLING_PROGRAM\" " + train(more).substr(8) +
           " --max_minutes 1 >" + log + " & run=$!; while kill -0 $run && ! grep -qs '^step ' " +
           log + "; do sleep 0.05; done; ";
  }
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }
  // The steps of metrics.jsonl at which there was a validation.
  int lines_in(const std::string& file) const {
    std::ifstream in(path(file));
    int lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }
  void expect_error(const std::string& line, int code, const std::string& text) const {
    const Ran ran = run_shell(line);
    EXPECT_EQ(ran.code, code) << line << ran.err;
    EXPECT_NE(ran.err.find(text), std::string::npos) << line << "\n" << ran.err;
  }
};

}  // namespace ink
