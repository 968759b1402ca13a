// The command line: one function a command, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "train/config.h"

namespace ink {

/// What a program returns: 0, 1 for anything that failed, 2 for a command line that makes no sense,
/// 130 after Ctrl-C.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kInterrupted = 130 };

/// The whole program: dispatches on the first word. Never throws; errors go to standard error, one
/// line each.
int run_command_line(int argc, char** argv);

/// A command line that makes no sense; the text says what would.
class UsageError : public Error {
 public:
  using Error::Error;
};

using Arguments = std::vector<std::string>;

// The commands; the arguments are those after the command's name.
int train_command(const Arguments& arguments);   // train_command.cpp
int sample_command(const Arguments& arguments);  // model_commands.cpp
int eval_command(const Arguments& arguments);
int info_command(const Arguments& arguments);
int gradcheck_command(const Arguments& arguments);    // gradcheck_command.cpp
int walkthrough_command(const Arguments& arguments);  // walkthrough_command.cpp
int seedhunt_command(const Arguments& arguments);     // seedhunt_command.cpp
int bench_command(const Arguments& arguments);        // bench_command.cpp

/// Parses arguments and, if it takes one, a --config file ("name = value" lines). '-' and '_' are
/// alike within names; an unknown name is answered with the nearest one. Throws UsageError. Returns
/// false if help was printed instead.
bool parse(CLI::App& app, const Arguments& arguments);
/// "; did you mean NAME?", or nothing if no name is near.
std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix = "");
/// One option for each field of a config but those named.
void add_options(CLI::App& app, TrainConfig& config, const std::set<std::string>& left_out = {});

/// Sets the number of CPU threads; 0: that of OMP_NUM_THREADS, or else one a core.
void use_threads(int64_t threads);

/// Warns on standard error when OpenBLAS runs kernels for an older processor than this one.
void warn_of_slow_blas();

}  // namespace ink
