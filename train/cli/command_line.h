// The command line: one function a command, and what they share.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "train/config.h"

namespace ink {

/// What a program returns: 0, 1 for anything that failed, 2 for a command line that makes no sense,
/// 130 after Ctrl-C.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kInterrupted = 130 };

/// The whole program: dispatches on the first word. Never throws; each error is a line of stderr.
int run_command_line(int argc, char** argv);

/// A command line that makes no sense; the text says what would.
class UsageError : public Error {
 public:
  using Error::Error;
};

using Arguments = std::vector<std::string>;

/// A word as the shell reads it: in quotes where it needs them.
std::string for_shell(const std::string& word);
/// What a user types to run a command of this program, by the name it was called by.
std::string typed(const std::string& command);

// The commands; the arguments are those after the command's name.
int train_command(const Arguments& arguments);   // train_command.cpp
int sample_command(const Arguments& arguments);  // model_commands.cpp
int eval_command(const Arguments& arguments);
int info_command(const Arguments& arguments);
int gradcheck_command(const Arguments& arguments);    // gradcheck_command.cpp
int walkthrough_command(const Arguments& arguments);  // walkthrough_command.cpp
int seedhunt_command(const Arguments& arguments);     // seedhunt_command.cpp
int bench_command(const Arguments& arguments);        // bench_command.cpp

/// The options of one command: their names, where their values go, and a line of help for each.
class CommandOptions {
 public:
  /// Where an option's value goes, and the default that it holds before.
  using Value = std::variant<std::string*, int64_t*, double*, std::vector<std::string>*>;
  struct Rules {
    bool shows_default = false;  // in the help
    Limits limits = {};          // shown in the help, too
    int most_values = 0;         // of a list; 0: any number
    char delimiter = 0;          // between the values of a list in one word
  };

  CommandOptions(const std::string& command, const std::string& description);
  ~CommandOptions();

  /// Names: "--rand,--values"; a name without dashes is the command's own argument.
  void add(const std::string& names, Value value, const std::string& help, const Rules& rules);
  void add(const std::string& names, Value value, const std::string& help) {
    add(names, value, help, Rules{});
  }
  /// One that needs no value.
  void flag(const std::string& name, bool& value, const std::string& help);
  /// One option for each field of a config but those named.
  void add_fields(TrainConfig& config, const std::set<std::string>& left_out = {});
  /// Takes --config FILE, a file of "name = value" lines.
  void take_config_file(const std::string& help);

  /// Reads arguments, and the config file that they name, into the values. '-' and '_' are alike
  /// within names; an unknown name is answered with the nearest one. Integers are decimal, and a
  /// number is never rounded, clamped or wrapped. Throws UsageError. Returns false if help was
  /// printed instead.
  bool parse(const Arguments& arguments);
  /// Was this option among the arguments?
  bool given(const std::string& name) const;

 private:
  struct Parser;  // CLI11's
  std::unique_ptr<Parser> parser_;
};
/// "; did you mean NAME?", or nothing if no name is near.
std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix = "");

/// parse_device; throws UsageError.
Device parsed_device(const std::string& name);

/// Sets the number of CPU threads; 0: that of OMP_NUM_THREADS, or else one a core.
void use_threads(int64_t threads);

/// Warns on standard error where products are OpenBLAS's and it runs kernels for an older processor
/// than this one; says what to do.
void warn_of_slow_blas();

}  // namespace ink
